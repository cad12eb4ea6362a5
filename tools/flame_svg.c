/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flame_svg.c - writes the tree as a self-contained SVG.
 *
 * Each frame is a nested <svg>: it clips its own text, so that zooming (embed/flame.js) sets x and width and
 * nothing else. The picture is complete without the script: in a mail or an <img> it is static.
 *
 * Names come from the recorded program and are not to be trusted: all text goes through put_text(), and the script
 * only ever reads it as text.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../converter/output.h"
#include "../traces/utf8.h"
#include "../traces/visible.h"
#include "common.h"
#include "flame.h"

#define WIDTH  1200 /* until the script fits the picture to the window */
#define MARGIN 10
#define ROW    18
#define HEAD   104

#define LONGEST 500 /* bytes of a name; longer ones are cut */

static const char script[] = {
#include "tools/embed/flame.js.inc"
    0};
static const char style[] = {
#include "tools/embed/flame.css.inc"
    0};

/* The user's code has warm, strong colours, libraries pale ones, native code cool ones: users find their own code
 * first, and everybody can tell blue from orange. The hue depends on the file, the lightness on the function. */
static const struct palette {
    const char *name;
    double hue, hue_range, saturation, light, light_range;
} palette[FLAME_NKINDS] = {
    [FLAME_GROUP] = {"", 220, 0, 0.10, 0.87, 0},
    [FLAME_USER] = {"your Python", 20, 18, 0.95, 0.60, 0.09},
    [FLAME_LIBRARY] = {"Python libraries", 43, 9, 0.80, 0.74, 0.09},
    [FLAME_NATIVE] = {"native", 200, 22, 0.48, 0.71, 0.09},
};

static double unit_hash(const char *s) {
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    return (double)(h & 0xffff) / 65536;
}

static unsigned channel(double hue, double s, double l, double shift) {
    double k = fmod(shift + hue / 30, 12), a = s * fmin(l, 1 - l);
    double v = l - a * fmax(-1, fmin(fmin(k - 3, 9 - k), 1));

    return (unsigned)lround(255 * v);
}

static void put_color(FILE *out, enum flame_kind kind, const char *func, const char *file) {
    const struct palette *p = &palette[kind];
    double hue = p->hue + p->hue_range * unit_hash(*file ? file : func);
    double l = p->light + p->light_range * unit_hash(func);

    fprintf(out, "#%02x%02x%02x", channel(hue, p->saturation, l, 0),
            channel(hue, p->saturation, l, 8), channel(hue, p->saturation, l, 4));
}

/* The colours of a change, by how many hundredths of all time the share changed: three steps of less and three of more. What may be chance is NO_CHANGE. */
static const struct change_color {
    double points; /* least change that has this colour, if it is above the noise */
    const char *color;
} change_colors[] = {{-1e9, "#5b8fd6"}, {-5, "#8fb5e6"}, {-1, "#c3d8f2"},
                     {0, "#f8cdbf"},    {1, "#f09a80"},  {5, "#e3664f"}};
#define NO_CHANGE "#dfe2e6"

static const char *change_color(const struct flame_change *c) {
    double points = 100 * (c->b - c->a);
    size_t i = sizeof change_colors / sizeof *change_colors - 1;

    if (fabs(c->b - c->a) <= c->noise)
        return NO_CHANGE;
    while (i && points < change_colors[i].points)
        i--;
    return change_colors[i].color;
}

/* Writes any bytes as XML text or attribute. What is not UTF-8, not allowed in XML or turns the direction of writing becomes U+FFFD. Names too
 * long to be read are cut, as a name is in the picture three times for each of its frames. */
static void put_text(FILE *out, const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    uint32_t c = 0;

    for (size_t n = strlen(text), len; n; p += len, n -= len) {
        if (p - (const unsigned char *)text > LONGEST) {
            fputs("\xe2\x80\xa6", out);
            break;
        }
        len = utf8_char(p, n, &c);
        if (!len || !visible_char(c))
            fputs("\xef\xbf\xbd", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c == '\'')
            fputs("&#39;", out);
        else
            fwrite(p, 1, len, out);
        len = len ? len : 1;
    }
}

static void put_title(FILE *out, const struct flame_label *l, const struct flame_node *n,
                      uint64_t all, double tick, const struct flame_change *change) {
    char a[TOOL_TEXT], b[TOOL_TEXT];

    fputs("<title>", out);
    put_text(out, l->func);
    if (*l->file) {
        fputc('\n', out);
        put_text(out, l->file);
        if (l->line)
            fprintf(out, ":%u", l->line);
    }
    fprintf(out, "\n%s samples", tool_count(n->total, a));
    if (tick > 0)
        fprintf(out, " (%s)", tool_duration((double)n->total * tick, b));
    fprintf(out, ", %.2f %%", 100.0 * (double)n->total / (double)all);
    if (n->self && n->self != n->total)
        fprintf(out, "; itself %.2f %%", 100.0 * (double)n->self / (double)all);
    if (change)
        fprintf(out, "\nA %.2f %%, B %.2f %%: %+.2f points%s", 100 * change->a, 100 * change->b,
                100 * (change->b - change->a),
                fabs(change->b - change->a) <= change->noise ? ", may be chance" : "");
    fputs("</title>", out);
}

struct canvas {
    const struct flame *f;
    const struct flame_picture *p;
    FILE *out;
    uint64_t all, least;
    unsigned rows;
};

static void put_frame(const struct canvas *c, uint32_t i) {
    static const char *const class[FLAME_NKINDS] = {"g", "u", "l", "c"};
    const struct flame_node *n = flame_node(c->f, i);
    const struct flame_label *l = flame_label_of(c->f, i);
    double scale = (double)(WIDTH - 2 * MARGIN) / (double)c->all;
    double w = (double)n->total * scale;
    unsigned row = c->p->icicle ? n->depth : c->rows - 1 - n->depth;
    const struct flame_change *change = c->p->change ? &c->p->change[i] : NULL;
    char name[1200];

    fprintf(
        c->out,
        "<svg class=\"f %s%s\" x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\" data-x=\"%" PRIu64
        "\" data-w=\"%" PRIu64 "\" data-s=\"%" PRIu64 "\" data-d=\"%u\"",
        class[l->kind], w < 18 ? " n" : "", MARGIN + (double)n->x * scale, HEAD + row * ROW, w,
        ROW - 1, n->x, n->total, n->self, n->depth);
    if (*l->file) {
        fputs(" data-file=\"", c->out);
        put_text(c->out, l->file);
        fputc('"', c->out);
        if (l->line)
            fprintf(c->out, " data-line=\"%u\"", l->line);
    }
    if (change)
        fprintf(c->out, " data-a=\"%.6f\" data-b=\"%.6f\" data-noise=\"%.6f\"", change->a,
                change->b, change->noise);
    fputc('>', c->out);
    put_title(c->out, l, n, c->all, c->p->tick, change);
    fputs("<rect width=\"100%\" height=\"17\" rx=\"2\" fill=\"", c->out);
    if (change)
        fputs(change_color(change), c->out);
    else
        put_color(c->out, l->kind, l->func, l->file);
    fputs("\"/><text x=\"4\" y=\"12.5\">", c->out);
    put_text(c->out, flame_name(l, name, sizeof name));
    fputs("</text></svg>\n", c->out);
}

/* Draws a colour of the legend at x, and the text that explains it. Returns the x of what comes next. */
static int put_key(const struct canvas *c, int x, const char *color, const char *text) {
    fprintf(
        c->out,
        "<rect class=\"key\" x=\"%d\" y=\"61\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n",
        x, color);
    if (text)
        fprintf(c->out, "<text class=\"soft\" x=\"%d\" y=\"71\">%s</text>\n", x + 18, text);
    return x + 14 + (text ? 4 + (int)strlen(text) * 7 + 14 : 0);
}

static void put_change_legend(const struct canvas *c) {
    static const char *const texts[] = {NULL, NULL, "less of all in B (5, 1, 0 points)",
                                        NULL, NULL, "more of all in B (0, 1, 5)"};
    int x = MARGIN;

    for (size_t i = 0; i < sizeof change_colors / sizeof *change_colors; i++) {
        x = put_key(c, x, change_colors[i].color, texts[i]);
        if (texts[i] && i == 2)
            x = put_key(c, x, NO_CHANGE, "may be chance");
    }
}

static void put_legend(const struct canvas *c) {
    int x = MARGIN;

    fputs("<g class=\"legend\">\n", c->out);
    if (c->p->change)
        put_change_legend(c);
    for (int k = FLAME_USER; k < FLAME_NKINDS && !c->p->change; k++) {
        fprintf(c->out, "<rect x=\"%d\" y=\"61\" width=\"12\" height=\"12\" rx=\"2\" fill=\"", x);
        put_color(c->out, (enum flame_kind)k, "legend", "legend");
        fprintf(c->out, "\"/><text class=\"soft\" x=\"%d\" y=\"71\">%s</text>\n", x + 18,
                palette[k].name);
        x += 18 + (int)strlen(palette[k].name) * 7 + 18;
    }
    fputs("</g>\n", c->out);
}

static void put_head(const struct canvas *c) {
    FILE *out = c->out;

    fprintf(out, "<g class=\"head\"><rect class=\"page\" width=\"100%%\" height=\"%d\"/>\n",
            HEAD - 4);
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"28\">", MARGIN);
    put_text(out, c->p->title ? c->p->title : "Flame graph");
    fprintf(out, "</text>\n<text class=\"soft\" x=\"%d\" y=\"48\">", MARGIN);
    put_text(out, c->p->subtitle ? c->p->subtitle : "");
    fputs("</text>\n", out);
    put_legend(c);
    fprintf(
        out,
        "<line class=\"rule\" x1=\"0\" x2=\"%d\" y1=\"80.5\" y2=\"80.5\"/>\n"
        "<text class=\"details ink\" x=\"%d\" y=\"95\">Width is time%s. Click a frame to zoom in, "
        "press / to search, Esc to go back; arrows walk, Enter zooms.</text>\n"
        "<g class=\"interactive\">\n"
        "<g class=\"reset\"><rect width=\"90\" height=\"26\" rx=\"6\"/>"
        "<text class=\"ink\" x=\"45\" y=\"17\" text-anchor=\"middle\">Reset zoom</text></g>\n"
        "<foreignObject class=\"search\" x=\"%d\" y=\"14\" width=\"240\" height=\"28\">"
        "<input xmlns=\"http://www.w3.org/1999/xhtml\" type=\"text\" spellcheck=\"false\" "
        "placeholder=\"search: text or /regex/\"/></foreignObject>\n"
        "<text class=\"matched soft\" x=\"%d\" y=\"58\" text-anchor=\"end\"></text>\n"
        "</g></g>\n",
        WIDTH, MARGIN, c->p->change ? " in B" : "", WIDTH - 250, WIDTH - MARGIN);
}

void flame_write_svg(const struct flame *f, const struct flame_picture *p, FILE *out) {
    struct canvas c = {.f = f, .p = p, .out = out};

    c.all = flame_node(f, FLAME_ROOT)->total;
    if (!c.all)
        c.all = 1; /* draws an empty picture, without a division by 0 */
    c.least = (uint64_t)ceil((double)c.all * p->least);
    if (!c.least)
        c.least = 1;
    c.rows = flame_depth(f, c.least) + 1;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" OUTPUT_PICTURE_MARK "\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flame\" width=\"%d\" height=\"%u\" "
            "data-total=\"%" PRIu64 "\" data-tick=\"%.9g\" data-width=\"%d\" data-root=\"%s\">\n"
            "<style>%s</style>\n"
            "<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n",
            WIDTH, HEAD + c.rows * ROW + 10, c.all, p->tick, WIDTH, p->icicle ? "top" : "bottom",
            style);
    fputs("<g class=\"frames\">\n", out);
    for (uint32_t i = 0; i < flame_nodes(f); i++) {
        if (i == FLAME_ROOT || flame_node(f, i)->total >= c.least)
            put_frame(&c, i);
    }
    fputs("</g>\n", out);
    put_head(&c);
    /* The script comes last, so that all elements that it looks for exist. */
    fprintf(out, "<script><![CDATA[\n%s]]></script>\n</svg>\n", script);
}
