# SPDX-License-Identifier: Apache-2.0
"""Makes HTML tables for notebooks. Names in a trace may contain anything, so all text is escaped."""
import datetime
import html

ROWS = 20


def _cell(field, value):
    if value is None:
        return "<i>null</i>"
    if field.format == b"tsn:UTC":
        try:
            at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value // 10 ** 9)
            value = "%s.%09d" % (at.isoformat(" "), value % 10 ** 9)
        except OverflowError:
            pass
    elif isinstance(value, float):
        value = "%.6g" % value
    elif isinstance(value, list):
        value = "\n".join(map(str, value[:8])) + ("\n... %d more" % (len(value) - 8) if len(value) > 8 else "")
    text = str(value)
    return html.escape(text if len(text) <= 400 else text[:400] + "...")


def table(name, fields, rows):
    head = "".join('<th title="%s">%s</th>' % (html.escape("%s. %s" % (f.type, f.description), True), html.escape(f.name)) for f in fields)
    body = "".join("<tr>%s</tr>" % "".join("<td>%s</td>" % _cell(f, v) for f, v in zip(fields, row)) for row in rows[:ROWS])
    more = "<p>the first %d rows</p>" % ROWS if len(rows) > ROWS else ""
    return "<p><b>%s</b></p><table><thead><tr>%s</tr></thead><tbody>%s</tbody></table>%s" % (html.escape(name), head, body, more)


def overview(traces):
    files = "".join("<li>%s</li>" % html.escape(p) for p in traces.paths[:10])
    more = "<li>and %d more</li>" % (len(traces.paths) - 10) if len(traces.paths) > 10 else ""
    names = ", ".join("<code>%s</code>" % html.escape(n) for n in traces.tables)
    return "<p><b>probing</b></p><ul>%s%s</ul><p>%s: %s</p><p>views: <code>.views</code>; questions: <code>.sql(...)</code></p>" % (
        files, more, "tables", names)
