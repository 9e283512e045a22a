"""Machinery shared by strategies; imports torch."""
