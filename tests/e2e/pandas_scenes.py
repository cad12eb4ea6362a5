# SPDX-License-Identifier: Apache-2.0
"""The target of test_objects.py: pandas' frames and series. Prints [[address, expected text]] as JSON, and waits."""
import json
import time

import numpy as np
import pandas as pd

kept, values = [], []


def shown(o, text):
    kept.append(o)
    values.append([hex(id(o)), text])


def frame(df, types):
    """`types`: where the renderer has another word for a column's type than pandas has."""
    columns = ["%r %s" % (name, types.get(name, str(dtype))) for name, dtype in zip(df.columns.tolist(), df.dtypes)]
    shown(df, "<%s.%s shape=%r%s>" % (type(df).__module__, type(df).__qualname__, df.shape,
                                      " columns: " * bool(columns) + ", ".join(columns[:20] + ["..."] * (len(columns) > 20))))


def series(s, content):
    shown(s, "<%s.%s%s>" % (type(s).__module__, type(s).__qualname__, content))


class Table(pd.DataFrame):
    pass


text = "StringArray" if str(pd.Series(["x"]).dtype) == "str" else "object"
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
series(df["e"], " name='e' shape=(3,) dtype=Categorical")
series(df["g"], " name='g' shape=(3,) dtype=IntegerArray")
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
