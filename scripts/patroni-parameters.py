"""Prints crates/sluice/src/cluster/parameters.txt anew, without its head: run it with the Python of Patroni's environment.

Lines of versions before PostgreSQL 13 are left out. What PostgreSQL knows beside them (postgres --describe-config) is
taken by Patroni as it is: such names are lines of type string, by hand.
"""

from pathlib import Path

import patroni
import yaml

file = Path(patroni.__file__).parent / "postgresql/available_parameters/0_postgres.yml"
parameters = yaml.safe_load(file.read_text())["parameters"]
for name, checks in sorted(parameters.items(), key=lambda item: item[0].lower()):
    for check in checks:
        till = check.get("version_till")
        if till and till <= 130000:
            continue
        line = [name.lower(), check["type"].lower(), check["version_from"], till or "-"]
        if check["type"] in ("Integer", "Real"):
            line += [check["min_val"], check["max_val"], check.get("unit") or "-"]
        elif check["type"] in ("Enum", "EnumBool"):
            line.append(",".join(check["possible_values"]))
        print(*line)
