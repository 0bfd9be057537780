"""The studies: functions that return a list of runs."""

from cissl.recipes.fashion import fashion
from cissl.recipes.toy import toy

__all__ = ["STUDIES", "fashion", "toy"]

STUDIES = {"toy": toy, "fashion": fashion}
