"""Lowering for chips with software-managed memories: copies by intrinsics, vectors and matrices in named
places.
"""
