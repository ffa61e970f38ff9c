"""Texts that are copied from a page, a mail or a notebook, printed as one literal of Python, or exported."""

import itertools
import json

from console_forms import ROWS, Forms, batch, batches, each, epoch

FORMS = Forms()
add = FORMS.add
whole = FORMS.whole


def number(value):
    return f"{value:.6g}"


# Literals of Python: print(trainer.state.log_history), print(history.history).
def history(r, first=0):
    return [{"loss": round(r.loss[i], 4), "grad_norm": round(r.norm[i], 4), "epoch": (i + 1) / 20, "step": 10 * i + 10} for i in range(first, ROWS)]


whole("list_of_rows", lambda r: str(history(r)) + "\n", each(10), file="out.txt")
whole("list_of_rows_named", lambda r: f"training done\nlog_history: {history(r)}\n", each(10))
whole("list_of_rows_json", lambda r: json.dumps(history(r)) + "\n", each(10), file="out.txt")
whole("list_of_rows_numpy", lambda r: "[" + ", ".join(f"{{'loss': np.float32({number(r.loss[i])}), 'step': {i + 1}}}" for i in range(ROWS)) + "]\n", each(), file="out.txt")
whole("list_of_rows_evaluated", lambda r: str([row for i, one in enumerate(history(r)) for row in (one, {"eval_loss": r.val[i], "step": 10 * i + 10})[:1 + (i % 10 == 9)]]) + "\n",
      each(10), file="out.txt")
whole("list_of_rows_printed_over_lines", lambda r: "[" + ",\n ".join(str(row) for row in history(r)) + "]\n", each(10), file="out.txt")
whole("tuple_of_rows", lambda r: str(tuple(history(r))) + "\n", each(10), file="out.txt")
whole("list_of_rows_without_steps", lambda r: str([{"loss": r.loss[i], "val_loss": r.val[i]} for i in range(ROWS)]) + "\n", each(), file="out.txt")
ELEMENTS = {"": number, "_numpy": lambda v: f"np.float32({number(v)})", "_tensors": lambda v: f"tensor({number(v)}, device='cuda:0')"}
for (kind, element), (shape, opens, closes) in itertools.product(
        ELEMENTS.items(), (("lists", "[", "]"), ("arrays", "array([", "])"), ("typed_arrays", "array([", "], dtype=float32)"), ("tuples", "(", ")"))):
    def columns(r, begins="", element=element, opens=opens, closes=closes, ends="\n", joined=", "):
        of = {"loss": r.loss, "accuracy": r.accuracy, "val_loss": r.val}
        return begins + "{" + ", ".join(f"'{name}': {opens}{joined.join(map(element, values))}{closes}" for name, values in of.items()) + "}" + ends
    whole(f"{shape}{kind}", columns, each(), file="out.txt")
    if kind == "":
        whole(f"{shape}_named", lambda r, columns=columns: columns(r, "Training finished. history = "), each())
        whole(f"{shape}_with_steps", lambda r, columns=columns: columns(r, ends="").replace("{", "{'step': [" + ", ".join(str(10 * i + 10) for i in range(ROWS)) + "], ") + "\n", each(10))
        whole(f"{shape}_over_lines", lambda r, columns=columns: columns(r, joined=",\n       ").replace(", '", ",\n '"), each(), file="out.txt")

# Signs that pages and editors put in place of those of ASCII.
SIGNS = {
    "no_break": (("  ", "\u00a0 "), (" ", "\u00a0")), "narrow": ((" ", "\u202f"),), "wide_space": ((" ", "\u3000"),), "thin": ((": ", ":\u2009"),),
    "full_width": ((", ", "\uff0c"), (": ", "\uff1a")), "full_width_equals": ((": ", "\uff1d"), (", ", "\uff1b")),
    "zero_width": ((" ", " \u200b"),), "pages": ((" ", "&nbsp;"), (": ", ":&#32;")),
}
LINES = {
    "words": lambda r, i: f"Step {i + 1}, loss: {r.loss[i]:.4f}, lr: {r.rate[i]:.2e}",
    "epoch": lambda r, i: f"Epoch: {i + 1}, train_loss: {r.loss[i]:.4f}, val_loss: {r.val[i]:.4f}",
}
for (name, pairs), (kind, line) in itertools.product(SIGNS.items(), LINES.items()):
    def replaced(r, i, pairs=pairs, line=line):
        text = line(r, i)
        for plain, copied in pairs:
            text = text.replace(plain, copied)
        return text
    add(f"{name}_{kind}", replaced, each())
for name, opens, closes in (("curly", "\u2018", "\u2019"), ("curly_double", "\u201c", "\u201d"), ("low", "\u201e", "\u201c"), ("page", "&#x27;", "&#x27;"),
                            ("page_number", "&#39;", "&#39;"), ("page_double", "&quot;", "&quot;"), ("full_width_quote", "\uff07", "\uff07")):
    add(f"{name}_quotes", lambda r, i, o=opens, c=closes: f"{{{o}loss{c}: {r.loss[i]:.4f}, {o}grad_norm{c}: {r.norm[i]:.4f}, {o}step{c}: {i + 1}}}", each())
add("minus_sign", lambda r, i: f"step {i + 1} loss {r.loss[i]:.4f} lr 1e\u22124 offset \u22120.5", each())

# Mail and bullets.
for name, quote in (("", "> "), ("_twice", "> > "), ("_tight", ">"), ("_joined", ">> ")):
    add(f"mail{name}", lambda r, i, quote=quote: f"{quote}Epoch {i + 1}/{ROWS}, Train Loss: {r.loss[i]:.4f}, Val Loss: {r.val[i]:.4f}", each(), "Train Loss", file="mail.txt")
whole("mail_with_words", lambda r: "Hello,\n\non Monday Anna wrote:\n" + "".join(f"> step {i + 1}: loss {r.loss[i]:.4f}\n" for i in range(ROWS)) + "\nWhat is wrong?\n", each(), file="mail.txt")
for name, bullet in (("star", "* "), ("star_in", " * "), ("dash", "- "), ("dot", "\u2022 "), ("dot_in", "  \u2022 "), ("triangle", "\u25b6 "), ("arrow", "-> "), ("check", "\u2713 ")):
    add(f"bullet_{name}", lambda r, i, bullet=bullet: f"{bullet}Epoch {i + 1}: train loss {r.loss[i]:.4f}, val loss {r.val[i]:.4f}", each(), "train loss")
    add(f"bullet_{name}_step", lambda r, i, bullet=bullet: f"{bullet}step {i + 1} loss {r.loss[i]:.4f}", each())

# Tables that are copied from a notebook: one space, or a tab, between the columns.
for name, gap in (("space", " "), ("tab", "\t"), ("wide", "     ")):
    add(f"notebook_{name}", lambda r, i, gap=gap: gap.join((str(10 * i + 10), f"{r.loss[i]:.6f}", f"{r.val[i]:.6f}")), each(10), "Training Loss", file="post.txt",
        head=f"My loss is 0, help!\n\n{gap.join(('Step', 'Training Loss', 'Validation Loss'))}\n")
    add(f"notebook_{name}_more", lambda r, i, gap=gap: gap.join((str(i + 1), f"{r.loss[i]:.6f}", f"{r.val[i]:.6f}", f"{r.accuracy[i]:.4f}", "0.5")), each(), "Training Loss", file="post.txt",
        head=gap.join(("Epoch", "Training Loss", "Validation Loss", "Accuracy", "F1")) + "\n")

# Exports.
whole("tensorboard_json", lambda r: json.dumps([[1.7e9 + i, 10 * i + 10, r.loss[i]] for i in range(ROWS)]), each(10), file="run_1-tag-train_loss.json")
whole("tensorboard_json_of_no_tag", lambda r: json.dumps([[1.7e9 + i, 10 * i + 10, r.loss[i]] for i in range(ROWS)], indent=1), each(10), file="loss.json")
whole("jsonl_commas", lambda r: ",\n".join(json.dumps({"step": i + 1, "loss": r.loss[i]}) for i in range(ROWS)) + "\n", each(), file="metrics.json")
whole("jsonl_commas_all", lambda r: "".join(json.dumps({"step": i + 1, "loss": r.loss[i]}) + ",\n" for i in range(ROWS)), each(), file="metrics.jsonl")
whole("jsonl_indented", lambda r: "".join(json.dumps({"step": i + 1, "loss": r.loss[i], "time": {"all": 1.5}}, indent=2) + "\n" for i in range(ROWS)), each(), file="metrics.json")
whole("jsonl_indented_commas", lambda r: ",\n".join(json.dumps({"step": i + 1, "loss": r.loss[i]}, indent=4) for i in range(ROWS)), each(), file="metrics.json")
for name, separator in (("", ","), ("_tab", "\t"), ("_semicolon", ";")):
    whole(f"csv_of_epochs{name}", lambda r, s=separator: s.join(("loss", "accuracy", "val_loss")) + "\n" + "".join(
        s.join(map(number, (r.loss[i], r.accuracy[i], r.val[i]))) + "\n" for i in range(ROWS)), each(), file="history.csv")
whole("csv_of_parts_of_epochs", lambda r: "epoch,loss\n" + "".join(f"{(i + 1) / 10:.1f},{number(r.loss[i])}\n" for i in range(ROWS)), each(), file="log.csv")
whole("csv_german", lambda r: "Schritt;Verlust;loss\n" + "".join(f"{10 * i + 10};{number(r.val[i])};{number(r.loss[i])}\n" for i in range(ROWS)).replace(".", ","), each(10), file="log.csv")
LONG_HEADS = (("step", "name", "value"), ("step", "metric", "value"), ("run", "metric", "step", "value"), ("tag", "step", "value"), ("wall_time", "step", "tag", "value"),
              ("key", "value", "step", "timestamp"), ("name", "step", "value", "run"))
for columns_of in LONG_HEADS:
    def long_table(r, names=columns_of):
        rows = []
        for i, (series, values) in itertools.product(range(ROWS), (("train/loss", r.loss), ("lr", r.rate), ("val/loss", r.val))):
            cell = {"step": 10 * i + 10, "value": number(values[i]), "run": "run-a", "wall_time": 1.7e9 + i, "timestamp": 1.7e9 + i}
            rows.append(",".join(str(cell.get(name, series)) for name in names))
        return ",".join(names) + "\n" + "\n".join(rows) + "\n"
    whole("long_csv_" + "_".join(columns_of), long_table, each(10), "train/loss", file="metrics.csv")
    # One series after the other.
    def by_series(r, names=columns_of):
        head, *rows = long_table(r, names).splitlines()
        return "\n".join([head] + sorted(rows, key=lambda row: next(k for k, s in enumerate(("train/loss", "lr", "val/loss")) if s in row.split(",")))) + "\n"
    whole("long_csv_by_series_" + "_".join(columns_of), by_series, each(10), "train/loss", file="metrics.csv")
whole("elastic", lambda r: json.dumps({"hits": {"total": ROWS, "hits": [{"_id": str(i), "_source": {"@timestamp": f"2024-06-01T12:{i // 60:02d}:{i % 60:02d}", "message": f"step {i + 1} loss {r.loss[i]:.4f}"}}
      for i in range(ROWS)]}}), each(), file="export.json")
