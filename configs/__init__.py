"""Files that come with the package: architecture files, data sheets of GPUs, sweeps people ask for."""

__all__: list[str] = []
