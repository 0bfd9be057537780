"""The paper's studies: functions that return a list of runs."""

from cissl.recipes.toy import toy

__all__ = ["toy"]
