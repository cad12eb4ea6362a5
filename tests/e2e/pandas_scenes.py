# SPDX-License-Identifier: Apache-2.0
"""The target of test_objects.py for pandas: frames and series. Prints [[address, expected text]] as JSON, and waits."""
import ctypes
import json
import time

import numpy as np
import pandas as pd

kept, values = [], []


def shown(o, text):
    kept.append(o)
    values.append([hex(id(o)), text])


def frame(df, types):
    """Adds a DataFrame. types: {column: name} for columns whose type the renderer names otherwise than pandas."""
    columns = ["%r %s" % (name, types.get(name, str(dtype))) for name, dtype in zip(df.columns.tolist(), df.dtypes)]
    shown(df, "<%s.%s shape=%r%s>" % (type(df).__module__, type(df).__qualname__, df.shape,
                                      " columns: " * bool(columns) + ", ".join(columns[:20] + ["..."] * (len(columns) > 20))))


def series(s, content):
    shown(s, "<%s.%s%s>" % (type(s).__module__, type(s).__qualname__, content))


class Table(pd.DataFrame):
    pass


text = type(pd.Series(["x"]).array).__name__
text = "object" if text in ("PandasArray", "NumpyExtensionArray") else text  # so named before pandas 3
df = pd.DataFrame({"a": [1, 2, 3], "b": [1.5, 2, 3], "c": ["x", "y", "z"], "d": pd.to_datetime(["2024-01-01"] * 3).astype("M8[ns]"),
                   "e": pd.Categorical(["u", "v", "u"]), "f": [4, 5, 6], "g": pd.array([1, None, 3], dtype="Int64"),
                   "h": np.array([1, 2, 3], dtype="f4"), "i": [True, False, True], "j": [[1], None, {}]})
own = {"c": text, "e": "Categorical", "g": "IntegerArray"}
frame(df, own)
frame(df[["f", "b"]], {})
frame(df[["f", "e", "a", "g"]], own)
frame(df.set_index("d"), own)
frame(df.iloc[1:], own)
frame(Table({"x": [1]}), {})
frame(pd.DataFrame(np.zeros((3, 4))), {})
frame(pd.DataFrame(np.zeros((1000, 50), dtype="i2")), {})
frame(pd.DataFrame(np.zeros((2, 3)), columns=[2020, 2021, -1]), {})
frame(pd.DataFrame(), {})
frame(pd.DataFrame({"wide %d" % i: [i] if i % 3 else [float(i)] for i in range(25)}), {})
series(df["a"], " name='a' shape=(3,) dtype=int64: 1, 2, 3")
series(df["b"], " name='b' shape=(3,) dtype=float64: 1.5, 2.0, 3.0")
series(df["c"], " name='c' shape=(3,) dtype=%s: 'x', 'y', 'z'" % text)
series(df["d"], " name='d' shape=(3,) dtype=datetime64[ns]" + ": " + ", ".join(["2024-01-01T00:00:00.000000000"] * 3))
series(df["e"], " name='e' shape=(3,) dtype=Categorical: 'u', 'v', 'u'")
series(df["g"], " name='g' shape=(3,) dtype=IntegerArray: 1, <NA>, 3")
series(pd.Series(pd.Categorical([1.5, None, 0.5])), " shape=(3,) dtype=Categorical: 1.5, nan, 0.5")
series(pd.Series(pd.Categorical.from_codes([0, 1, 0, -1], categories=pd.RangeIndex(4, 6))),
       " shape=(4,) dtype=Categorical: 4, 5, 4, nan")
series(pd.Series(pd.cut([1, 5], [0, 3, 6], labels=["low", "high"])), " shape=(2,) dtype=Categorical: 'low', 'high'")
damaged = pd.Series(pd.Categorical(["u", "v", "u"]))  # elements of 16 bytes, which no codes have
codes = damaged.array._ndarray if hasattr(damaged.array, "_ndarray") else damaged.array._codes
wide = np.dtype("i1", metadata={"a type": "of its own"})
size, at = (ctypes.c_int64, 40) if np.__version__ >= "2" else (ctypes.c_int32, 32)
size.from_address(id(wide) + at).value = 16
ctypes.c_uint64.from_address(id(codes) + 56).value = id(wide)
kept.append(wide)
series(damaged, " shape=(3,) dtype=Categorical")
many = pd.Series(pd.Categorical(["c%d" % (i % 300) for i in range(1000)]))
series(many, " shape=(1000,) dtype=Categorical: " + ", ".join("'c%d'" % i for i in range(20)) + ", ...")
series(pd.Series([True, None], dtype="boolean"), " shape=(2,) dtype=BooleanArray: True, <NA>")
try:
    import pyarrow as pa
except ImportError:
    pa = None
if pa and hasattr(pd, "ArrowDtype"):  # pandas 1.5 and later
    kind = "ArrowExtensionArray"
    for values_, type_, text_ in (([1, None, -3], pa.int64(), "1, <NA>, -3"), ([0.5, 2.0, None], pa.float32(), "0.5, 2.0, <NA>"),
                                  ([True, False, None], pa.bool_(), "True, False, <NA>"), (["a\u6587", None, ""], pa.string(), "'a\u6587', <NA>, ''"),
                                  (["x", "y"], pa.large_string(), "'x', 'y'"), ([200, 7], pa.uint8(), "200, 7")):
        chunks = pa.chunked_array([pa.array(values_[:1], type_), pa.array([], type_), pa.array(values_, type_)[1:]])
        column = pd.Series(chunks.to_pandas(types_mapper=pd.ArrowDtype) if pd.__version__[0] > "1" else pd.array(values_, dtype=pd.ArrowDtype(type_)))
        series(column, " shape=(%d,) dtype=%s: %s" % (len(values_), type(column.array).__name__, text_))
    frame(pd.DataFrame([[1, 2]], columns=pd.Index(["p", "q"], dtype="string[pyarrow]")), {})
series(pd.Series(range(100)), " shape=(100,) dtype=int64: " + ", ".join(map(str, range(20))) + ", ...")
series(pd.Series([], dtype="f8"), " shape=(0,) dtype=float64")
loop = pd.Series([None], dtype=object)
loop[0] = {"me": 1}
loop[0]["me"] = loop
series(loop, " shape=(1,) dtype=object: {'me': <%s.Series: ...>}" % type(loop).__module__)
shown(pd.Timestamp(2024, 2, 29, 12, 30), "Timestamp(2024, 2, 29, 12, 30)")
shown(pd.Timedelta(days=2, seconds=5), "Timedelta(days=2, seconds=5)")

print(json.dumps({"values": values}), flush=True)
time.sleep(1000)
