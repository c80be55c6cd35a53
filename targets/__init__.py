"""Targets that ship with hwsdk: one folder per family with YAML descriptions and what runs on them."""
