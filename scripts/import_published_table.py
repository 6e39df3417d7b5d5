"""Make scheduling/throughput/profiles/published/gavel.json from the published table:
`import_published_table.py TABLE LICENCE`."""

from __future__ import annotations

import json
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "scheduling" / "profiles" / "published" / "gavel.json"
SPREAD = "_unconsolidated"


def _short(value: float) -> float:
    """Six significant digits: far finer than such measurements repeat."""
    return float(f"{value:.6g}")


def convert(table: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Rows and columns in the order of `kinds`; null: no such entry."""
    read = {kind: {literal_eval(key): row for key, row in rows.items()} for kind, rows in table.items()}
    kinds = list(dict.fromkeys(name for rows in read.values() for name, _ in rows))
    gangs = sorted({gang for rows in read.values() for _, gang in rows})
    types: dict[str, Any] = {}
    for kind in sorted(kind for kind in read if not kind.endswith(SPREAD)):
        rows, spread = read[kind], read.get(kind + SPREAD, {})
        for gang in gangs:
            entry: dict[str, Any] = {"alone": [], "spread": [], "colocated": []}
            for name in kinds:
                row = rows.get((name, gang))
                entry["alone"].append(_short(row["null"]) if row else None)
                wide = spread.get((name, gang)) if gang > 1 else None
                entry["spread"].append(_short(wide["null"]) if wide else None)
                pairs = [(row or {}).get(str((other, gang))) for other in kinds]
                entry["colocated"].append([_short(pair[0]) if pair else None for pair in pairs] if row else None)
            types.setdefault(kind, {})[str(gang)] = entry
    return {"kinds": kinds, "types": types}


def main() -> None:
    table, licence = (Path(name).read_text() for name in sys.argv[1:3])
    head = {
        "name": "gavel",
        "title": "Throughputs of 26 training workloads on K80, P100 and V100, alone and co-located",
        "source": "https://github.com/stanford-futuredata/gavel, scheduler/simulation_throughputs.json",
        "paper": "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020",
        "unit": "mini-batches per second of the whole gang",
        "note": "0 does not fit; null was not measured. alone: consolidated; spread: the gang spans nodes; "
        "colocated[a][b]: kind a where it shares its GPUs with b, consolidated.",
        "licence": "MIT",
        "notice": licence,
    }
    text = json.dumps(head | convert(json.loads(table)), separators=(",", ":"))
    TARGET.write_text(text.replace('"alone"', '\n"alone"').replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()
