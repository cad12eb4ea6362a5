# SPDX-License-Identifier: Apache-2.0
"""Tables that the program fills, with the interface of ExternalTable in the original Probing. A row is an event named python.TABLE, whose values are
its columns; the converter makes a view for each such name."""
import collections
import time

import probing

KEPT = 1000  # rows of each table that take() gives: what is recorded is in the trace
TEXT = 256  # characters of a text that are kept, as many as are recorded

_tables = {}


def _simple(value):
    """Returns what is kept of a value for take(): never an object of the program, which might be a large tensor."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return value[:TEXT] if isinstance(value, str) else None


def _declare(name, columns):
    """Records that the table exists, so that a table without rows is one, too. The keys of this event are column numbers, because the keys of a row
    are the names of its columns."""
    if probing._native is not None:
        probing._native.event("python.table()", table=name, **{str(i): column for i, column in enumerate(columns)})


def tell():
    """Tells a recording that has begun which tables there are."""
    for name, table in list(_tables.items()):
        _declare(name, table._names)


class ExternalTable(object):
    """A table that the program fills, which `probing query` has as python.NAME (or NAME), live or from the trace:

        table = probing.ExternalTable("throughput", ["epoch", "images", "rate"])
        table.append([epoch, images, images / seconds])

    Values are numbers and texts; other values, and tensors of one element, are recorded as by probing.event(). Each row also has timestamp, step,
    rank, pid and trace_id. Rows that are appended while nothing is being recorded are in no trace; take() has the last 1,000 rows in any case.
    """

    __slots__ = ("_name", "_names", "_rows")

    def __init__(self, name, columns, config=None):
        """config is as in the original: {"discard_strategy": "BaseElementCount", "discard_threshold": rows} keeps fewer rows for take()."""
        if not isinstance(name, str) or not name:
            raise TypeError("probing.ExternalTable(name, columns): name is a str")
        columns = list(columns) if not isinstance(columns, str) else [columns]
        if not columns or not all(isinstance(c, str) and c for c in columns):
            raise TypeError("probing.ExternalTable(name, columns): columns are names")
        if len({c.lower() for c in columns}) < len(columns):
            raise ValueError("table %s: two columns of one name" % name)
        kept = KEPT
        if config and config.get("discard_strategy") == "BaseElementCount":
            kept = max(1, min(int(config.get("discard_threshold", KEPT)), KEPT))
        self._name, self._names, self._rows = name, columns, collections.deque(maxlen=kept)
        _tables[name] = self
        _declare(name, columns)

    @classmethod
    def get(cls, name):
        """Returns the table of that name; raises ValueError if there is none."""
        if name not in _tables:
            raise ValueError("table %s not found" % name)
        return _tables[name]

    @classmethod
    def get_or_create(cls, name, columns, config=None):
        return _tables[name] if name in _tables else cls(name, columns, config)

    @classmethod
    def drop(cls, name):
        """Forgets the table of that name in this process; rows that were recorded stay in the trace."""
        _tables.pop(name, None)

    def names(self):
        return list(self._names)

    def _add(self, micros, values, **more):
        values = list(values)
        if len(values) != len(self._names):
            raise ValueError("table %s has %d columns, and not %d" % (self._name, len(self._names), len(values)))
        self._rows.append((micros, [_simple(v) for v in values]))
        if probing._native is not None:
            more.update(zip(self._names, values))
            probing._native.event("python." + self._name, **more)

    def append(self, values):
        """Appends a row: a value for each column."""
        self._add(int(time.time() * 1e6), values)

    def append_many(self, rows):
        for values in rows:
            self.append(values)

    def append_ts(self, micros, values):
        """Appends a row with a time of its own, in microseconds since 1970."""
        self._add(micros, values, timestamp=micros / 1e6)

    def take(self, limit=None):
        """Returns [(microseconds since 1970, [value, ...]), ...], oldest first: the first `limit` of the rows that are kept."""
        rows = list(self._rows)
        return rows if limit is None else rows[:limit]

    def __repr__(self):
        return "<probing.ExternalTable %s (%s)>" % (self._name, ", ".join(self._names))


def _table_name(text):
    """Returns the table's name for a class's name: through_put for ThroughPut."""
    import re
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()


def table(name=None):
    """Decorates a dataclass so that its objects are rows of an ExternalTable with the same fields, as in the original Probing:

        @probing.table                          # or @probing.table("throughput"); default: through_put for ThroughPut
        @dataclasses.dataclass
        class ThroughPut:
            epoch: int
            images: int

        ThroughPut(1, 500).save()               # ThroughPut.append(row), .append_many(rows), .take(n), .drop()
    """
    import dataclasses
    if name is not None and not isinstance(name, (str, type)):
        raise TypeError("probing.table(name) or @probing.table of a dataclass")

    def make(cls):
        if not dataclasses.is_dataclass(cls):
            raise TypeError("%r is no dataclass" % cls)
        names = [f.name for f in dataclasses.fields(cls)]
        of = name.lower() if isinstance(name, str) else _table_name(cls.__name__)
        rows = ExternalTable.get_or_create(of, names)
        if rows.names() != names:
            raise ValueError("table %s is there with other columns: %s" % (of, ", ".join(rows.names())))

        def append(row):
            rows.append([getattr(row, n) for n in names])

        def append_many(several):
            for row in several:
                append(row)

        cls.append, cls.append_many, cls.take = staticmethod(append), staticmethod(append_many), staticmethod(rows.take)
        cls.save, cls.drop = append, staticmethod(lambda: ExternalTable.drop(of))
        return cls

    return make if name is None or isinstance(name, str) else make(name)
