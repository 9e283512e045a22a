"""Adapters: one function per kernel signature, from the common contract to what the kernel documents."""
