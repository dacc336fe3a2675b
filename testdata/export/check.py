"""Reads with DuckDB, pandas and pyarrow what the export wrote, and says what is
wrong: check.py all FOLDER for the table of all types, check.py same FOLDER for
states that were written as Parquet (parquet/) and as Arrow (arrow/, arrows/)."""
import datetime as dt
import decimal
import glob
import math
import os
import sys

import duckdb
import pandas
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

D, UTC = decimal.Decimal, dt.timezone.utc
failed = 0


def expect(what, got, want):
    global failed
    if got != want:
        failed += 1
        print(f"{what}: is {got!r}, wanted {want!r}")


# name: DuckDB type, Arrow type, values of the first row (the second is null or empty)
ALL = {
    "ok": ("BOOLEAN", "bool", True),
    "tiny": ("TINYINT", "int8", -128),
    "small": ("SMALLINT", "int16", -32768),
    "number": ("INTEGER", "int32", -2147483648),
    "long": ("BIGINT", "int64", -9223372036854775808),
    "real": ("FLOAT", "float", 0.5),
    "double": ("DOUBLE", "double", -1.25e300),
    "text": ("VARCHAR", "string", "h\u00e9llo \U0001f600"),
    "bytes": ("BLOB", "binary", b"\x00\xff"),
    "money": ("DECIMAL(9,2)", "decimal128(9, 2)", D("-1234567.89")),
    "wide": ("DECIMAL(18,4)", "decimal128(18, 4)", D("12345678901234.5678")),
    "widest": ("DECIMAL(38,10)", "decimal128(38, 10)", D("-1234567890123456789012345678.0123456789")),
    "big": ("VARCHAR", "string", "123456789012345678901234567890"),
    "day": ("DATE", "date32[day]", dt.date(2026, 11, 29)),
    "clock": ("TIME", "time32[ms]", dt.time(12, 30, 0, 500000)),
    "date": ("TIMESTAMP WITH TIME ZONE", "timestamp[ms, tz=UTC]", dt.datetime(2026, 11, 29, 12, 30, 0, 500000, UTC)),
    "ts3": ("TIMESTAMP", "timestamp[ms]", dt.datetime(2026, 11, 29, 12, 30, 0, 500000)),
    "ts6": ("TIMESTAMP", "timestamp[us]", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "ltz6": ("TIMESTAMP WITH TIME ZONE", "timestamp[us, tz=UTC]", dt.datetime(2026, 11, 29, 12, 30, 0, 1, UTC)),
    "color": ("VARCHAR", "string", "RED"),
    "list": ("INTEGER[]", "list<element: int32>", [1, 2, 3]),
    "nested": ("VARCHAR[][]", "list<element: list<element: string>>", [["a", None], [], None]),
    "map": ("MAP(VARCHAR, BIGINT)", "map<string, int64>", {"a": 1, "b": None}),
    "row": (
        'STRUCT("@row_kind" VARCHAR, id BIGINT, tags VARCHAR[])',
        "struct<@row_kind: string, id: int64, tags: list<element: string>>",
        {"@row_kind": "INSERT", "id": 7, "tags": ["x"]},
    ),
    "tuple": ("STRUCT(f0 INTEGER, f1 VARCHAR)", "struct<f0: int32 not null, f1: string>", {"f0": 1, "f1": None}),
    "either": ("STRUCT(\"left\" VARCHAR, \"right\" BIGINT)", "struct<left: string, right: int64>", {"left": None, "right": 5}),
    "window": (
        "STRUCT(window_start BIGINT, window_end BIGINT)",
        "struct<window_start: int64 not null, window_end: int64 not null>",
        {"window_start": 0, "window_end": 1000},
    ),
}


def plain(v):
    """One form for what DuckDB and pyarrow give."""
    if isinstance(v, dict) and set(v) == {"key", "value"} and isinstance(v["key"], list):
        return dict(zip(v["key"], map(plain, v["value"])))
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list):
        if v and all(isinstance(x, tuple) and len(x) == 2 for x in v):
            return {k: plain(x) for k, x in v}
        return [plain(x) for x in v]
    if isinstance(v, dt.datetime) and v.tzinfo:
        return v.astimezone(UTC)
    if isinstance(v, pandas.Timestamp):
        return plain(v.to_pydatetime())
    return v


def check_all(folder):
    parquet, arrow, stream = (os.path.join(folder, "all." + e) for e in ("parquet", "arrow", "arrows"))
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    types = {r[0]: r[1] for r in db.execute(f"describe select * from '{parquet}'").fetchall()}
    result = db.execute(f"select * from '{parquet}'")
    rows = [dict(zip([c[0] for c in result.description], r)) for r in result.fetchall()]
    expect("duckdb: columns", set(types) - {"t9", "ltz9", "time9"}, set(ALL))
    expect("duckdb: rows", len(rows), 2)
    tables = {
        "parquet": pa.parquet.read_table(parquet),
        "arrow": pa.ipc.open_file(arrow).read_all(),
        "feather": pa.feather.read_table(arrow),
        "stream": pa.ipc.open_stream(stream).read_all(),
    }
    for name, (duck, arrowtype, value) in ALL.items():
        expect(f"duckdb: type of {name}", types[name], duck)
        expect(f"duckdb: {name}", plain(rows[0][name]), value)
        for kind, t in tables.items():
            got = str(t.schema.field(name).type).replace(" ('map')", "")
            expect(f"{kind}: type of {name}", got, arrowtype)
            expect(f"{kind}: {name}", plain(t.column(name)[0].as_py()), value)
    for kind, t in tables.items():
        nulls = {n for n in t.column_names if t.column(n)[1].as_py() is None}
        required = {"ok", "tiny", "small", "number", "long", "real", "double"}
        expect(f"{kind}: nulls of the second row", nulls, set(t.column_names) - required)
        expect(f"{kind}: not nullable", {f.name for f in t.schema if not f.nullable}, required)
        for name, unit in (("t9", "timestamp[ns]"), ("ltz9", "timestamp[ns, tz=UTC]"), ("time9", "time64[us]")):
            expect(f"{kind}: type of {name}", str(t.schema.field(name).type), unit)
        expect(f"{kind}: t9", t.column("t9")[0].value, 1795955400000000001)
        expect(f"{kind}: ltz9", t.column("ltz9")[0].value, -1)
        expect(f"{kind}: time9", t.column("time9")[0].value, 45000000001)
        expect(f"{kind}: state", t.schema.metadata[b"tidemark.state"], b"all")
        expect(f"{kind}: NaN", math.isnan(t.column("double")[1].as_py()), True)
    expect("duckdb: type of t9", types["t9"], "TIMESTAMP_NS")
    expect("duckdb: t9", db.execute(f"select epoch_ns(t9) from '{parquet}'").fetchone()[0], 1795955400000000001)
    expect("duckdb: a field of a struct", db.execute(f"select \"row\".id from '{parquet}' where money < -1e6").fetchall(), [(7,)])
    expect("duckdb: a map", db.execute(f"select map['a'] from '{parquet}' limit 1").fetchone()[0] in (1, [1]), True)
    in_memory = tables["arrow"]  # DuckDB finds it by its name
    expect("duckdb: arrow in memory", db.execute("select count(*), sum(money) from in_memory").fetchone(), (2, D("-1234567.89")))
    for what, frame in (("parquet", pandas.read_parquet(parquet)), ("feather", pandas.read_feather(arrow))):
        expect(f"pandas, {what}: int8", str(frame["tiny"].dtype), "int8")
        expect(f"pandas, {what}: decimal", frame["money"][0], D("-1234567.89"))
        expect(f"pandas, {what}: timestamp", frame["date"][0], pandas.Timestamp("2026-11-29T12:30:00.5", tz="UTC"))
        expect(f"pandas, {what}: list", list(frame["list"][0]), [1, 2, 3])
        expect(f"pandas, {what}: struct", frame["row"][0]["id"], 7)
        expect(f"pandas, {what}: text", frame["text"][0], "h\u00e9llo \U0001f600")


def check_same(folder):
    db = duckdb.connect()
    files = sorted(glob.glob(os.path.join(folder, "*", "parquet", "*.parquet")))
    rows = 0
    for name in files:
        case, base = os.path.dirname(os.path.dirname(name)), os.path.basename(name)[: -len(".parquet")]
        feather = os.path.join(case, "arrow", base + ".arrow")
        a = pa.parquet.read_table(name)
        b = pa.ipc.open_file(feather).read_all()
        c = pa.ipc.open_stream(os.path.join(case, "arrows", base + ".arrows")).read_all()
        a.validate(full=True), b.validate(full=True), c.validate(full=True)
        what = os.path.basename(case) + "/" + base
        expect(f"{what}: columns", b.column_names, a.column_names)
        expect(f"{what}: rows", str(b.to_pylist()), str(a.to_pylist()))
        expect(f"{what}: rows of the stream", str(c.to_pylist()), str(a.to_pylist()))
        quoted = name.replace("'", "''")
        n, described = db.execute(f"select count(*) from '{quoted}'").fetchone()[0], db.execute(f"describe select * from '{quoted}'").fetchall()
        db.execute(f"select * from '{quoted}'").fetchall()  # every value is read
        expect(f"{what}: DuckDB's rows", n, a.num_rows)
        expect(f"{what}: DuckDB's columns", [d[0] for d in described], a.column_names)
        for read, file in ((pandas.read_parquet, name), (pandas.read_feather, feather)):
            try:
                expect(f"{what}: rows in pandas", len(read(file)), n)
            except Exception as e:
                expect(f"{what}: pandas", str(e), "read")
        rows += n
    expect("there are states", len(files) > 20, True)
    print(f"{len(files)} states, {rows} rows: DuckDB {duckdb.__version__}, pandas {pandas.__version__}, pyarrow {pa.__version__}")


{"all": check_all, "same": check_same}[sys.argv[1]](sys.argv[2])
sys.exit(1 if failed else 0)
