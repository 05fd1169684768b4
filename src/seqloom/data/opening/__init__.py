"""Opening files safely: what stands on the disk, unpacked, decoded and cut into lines, in pieces and within bounds.

files ──▶ compressed ──▶ characters ──▶ lines ──▶ blocks        text
files ──▶ stored_arrays                                         npz
"""
