"""Policies, plans, queries and their cost."""
