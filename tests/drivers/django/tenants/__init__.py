"""Tenants and what they have."""
