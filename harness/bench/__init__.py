"""Benchmarks of paretune itself: every module here has ``bench() -> str``, which measures and returns Markdown.

``make bench`` runs all of them, ``paretune bench NAME`` one. They compare side by side in one run and state ratios;
nothing here is a test, and no test times itself.
"""
