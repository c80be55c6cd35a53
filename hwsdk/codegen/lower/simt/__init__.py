"""Lowering for machines of many lanes with ids: workgroups, lockstep groups of lanes, a scratchpad per workgroup."""
