"""Watch results in CI: tight on bytes, noise-aware on time, closed when it cannot tell."""
