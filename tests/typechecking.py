"""The run-time type checker of the tests: beartype, with an int where a float is asked for, as mypy has it."""

import beartype

check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
