#!/usr/bin/env python3
"""Tries `narrows advise`: thirty cases of data and link, every setting predicted and then run.

Both ends and the emulated link run on this machine, as `narrows advise --sweep` has it; needs a release build and no root.
A case's files are given several times over where they are short for its link, so that a transfer takes half a second or
more: less is a matter of milliseconds that nobody has control of. A repeat is farther away than any codec of the sweep looks
back, so repeating helps nobody. Cases that --out holds already are not run again; --minutes begins no case after that.

    bench/advise/run.py --corpus DIR [--links 50,200,1000] [--data nci,vm] [--minutes 2] [--out advise.jsonl]

`table.py` turns --out into tables.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from netns import NARROWS, machine
from table import Case

# Megabits a second: milliseconds there and back, seconds that raw takes. What packs well is there in a fifth of them.
LINKS = {50: (20, 1.5), 200: (5, 1.5), 1000: (0, 2.0)}
# Chosen before any of them was looked at; the model was made with the bundled sample, silesia.dickens, standin.mozilla.firefox,
# disk.ext4_guest and silesia.xml, and with CASES_BEFORE, which showed its faults.
CASES = {
    "webster": ["standin.webster.gcide"],
    "sqlite": ["tables.movies_sqlite"],
    "covid": ["text.covid_it_province"],
    "gcc": ["logs.gcc"],
    "genes": ["bio.illumina_fq", "bio.rdenit_gbk"],
    "medical": ["med.fmri_ffd_a", "med.rg1_radiograph"],
    "office": ["silesia.ooffice"],
    "doubles": ["isabel.velmag_t30_f64", "f64.jpl_de405", "elf.Stocks-DE", "elf.Blockchain-tr", "elf.Basel-temp"],
    "era5": ["ints.era5"],
    "dirty": ["vm.A_dirty_old"],
}
CASES_BEFORE = {
    "nci": ["silesia.nci"],
    "samba": ["silesia.samba"],
    "osdb": ["silesia.osdb"],
    "images": ["silesia.x-ray", "silesia.mr"],
    "tables": ["tables.nycflights_csv", "tables.pg_heap"],
    "swap": ["swap.python_pandas"],
    "vm": ["vm.A_ram"],
    "sources": ["src.linux_kernel"],
    "floats": ["isabel.velmag_t02_f32", "isabel.velmag_t46_f32", "climate.uk_hires_pp", "ocean.nemo", "wind.navy_u"],
    "training": ["dl.mnist_cnn_trace"],
}
FILES = CASES | CASES_BEFORE

def measure(mbit, data, names, args):
    rtt, seconds = LINKS[mbit]
    files = [args.corpus / name for name in names]
    once = sum(file.stat().st_size for file in files)
    times = -(-int(mbit / 8e-6 * seconds) // once)
    command = [NARROWS, "advise", "-q", "--json", "--sweep", "--link", f"{mbit}mbit", "--rtt", rtt, "--seconds", seconds,
               "--repeat", args.repeat, *files * times]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{mbit} {data}: {done.stderr}")
    rows = [line["row"] for line in map(json.loads, done.stdout.splitlines()) if "row" in line]
    settings, sent = {}, 0
    for row in rows:
        case, part = row["case"], row["case"].get("part")
        name = case.get("codec") or case.get("policy")
        if part == "prediction":
            settings[name] = {"predicted_mbit_s": row["values"]["effective_mbit_s"], "mbit_s": [], "chosen": "chosen" in row.get("marks", [])}
        elif part == "verification":
            settings[name]["mbit_s"].append(row["values"]["effective_mbit_s"])
            sent = case["data_bytes"]
    return {"schema": "narrows.advise-bench/1", "link_mbit": mbit, "rtt_ms": rtt, "data": data, "files": names, "bytes": sent,
            "repeat": args.repeat, "settings": settings}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--links", default=",".join(map(str, LINKS)))
    parser.add_argument("--data", default=",".join(CASES), help="of the cases; or files of the corpus")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("advise.jsonl"))
    args = parser.parse_args()
    had = {(row["link_mbit"], row["data"]) for row in map(json.loads, args.out.read_text().splitlines()) if "data" in row} if args.out.exists() else set()
    began = time.monotonic()
    with args.out.open("a") as out:
        out.write(json.dumps(machine(command=shlex.join(["bench/advise/run.py", "--links", args.links, "--data", args.data, "--repeat", str(args.repeat)]))) + "\n")
        for mbit in map(int, args.links.split(",")):
            for data in args.data.split(","):
                if (mbit, data) in had:
                    continue
                if time.monotonic() - began > args.minutes * 60:
                    sys.exit("time is over; the same command goes on from here")
                row = measure(mbit, data, FILES.get(data, [data]), args)
                out.write(json.dumps(row) + "\n")
                out.flush()
                print("| " + " | ".join(Case(row).line()) + " |", flush=True)


if __name__ == "__main__":
    main()
