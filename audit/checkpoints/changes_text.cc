#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "audit/checkpoints/changes.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostMoved = 10, kMostNames = 8, kMostChangedGroups = 60;

// Returns |change| / |A| as text. If A is zero, returns "from 0".
std::string Relative(double squares_change, double squares_a) {
  if (squares_change == 0) return "0";
  return squares_a > 0 ? absl::StrFormat("%.3g", std::sqrt(squares_change / squares_a)) : "from 0";
}

// Writes the text of `plumb diff`: sides, counts, groups, then the tensors of each kind that moved
// most.
class ChangesWriter : TextBlocks {
 public:
  ChangesWriter(const CheckpointChanges& changes, const TextStyle& style)
      : TextBlocks(style), changes_(changes) {}

  std::string Render(const CheckpointSide& a, const CheckpointSide& b) {
    Side("A", a);
    Side("B", b);
    Counts();
    Groups("By role (weights)", changes_.roles);
    Groups("By layer (weights)", changes_.layers);
    Moved("Weights that changed most", TensorKind::kModel);
    Moved("Averages that changed most", TensorKind::kAverage);
    Moved("Optimizer state that changed most", TensorKind::kOptimizer);
    NotCompared();
    return std::move(out_);
  }

 private:
  // Writes the head of one side: its checkpoint, and problems of its files.
  void Side(const char* name, const CheckpointSide& side) {
    Line(0, absl::StrCat(
                name, "  ", side.path, ": step ", side.step, " of ", side.run, ", ",
                Plural(side.tensors.size(), "tensor"),
                side.steps > 1 ? absl::StrCat(" (the newest of ", side.steps, " steps)") : ""));
    for (const InputReport& input : side.inputs.reports) {
      for (const Problem& problem : input.problems) Line(4, input.Line(problem));
    }
  }

  // Lists the first names, and the number of the others.
  static std::string Names(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size() && i < kMostNames; ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
    if (names.size() > kMostNames)
      absl::StrAppend(&text, " and ", names.size() - kMostNames, " more");
    return text;
  }

  // Writes how many tensors changed, which exist on one side alone, and which were renamed.
  void Counts() {
    std::vector<std::string> same;
    size_t changed = 0;
    for (const TensorChange& change : changes_.tensors) {
      if (!change.wrong.empty()) continue;
      if (change.differ > 0) {
        ++changed;
      } else {
        same.push_back(change.name);
      }
    }
    out_ += "\n";
    Line(0, absl::StrCat(Plural(changed, "tensor"), " changed, ", same.size(),
                         " identical in every bit", same.empty() ? "" : ": " + Names(same)));
    if (!changes_.only_a.empty()) Line(0, "Only in A: " + Names(changes_.only_a));
    if (!changes_.only_b.empty()) Line(0, "Only in B: " + Names(changes_.only_b));
    if (!changes_.unfitted.empty())
      Line(0, "Names in the map that match no name of A: " + Names(changes_.unfitted));
    std::vector<std::string> renamed;
    for (const auto& [a, b] : changes_.renamed) renamed.push_back(absl::StrCat(a, " is B's ", b));
    if (!renamed.empty()) Line(0, "The same bits under a different name: " + Names(renamed));
  }

  // Writes a table with one row per layer or role.
  void Groups(const char* heading, const std::vector<ChangeGroup>& groups) {
    if (groups.empty()) return;
    Heading(heading);
    std::vector<std::string> head = {"", "changed", "|change|/|A|", "rows unmoved"};
    if (changes_.with_before) head.push_back("cosine to the previous change");
    std::vector<std::vector<std::string>> rows = {head};
    for (const ChangeGroup& group : groups) {
      if (rows.size() > kMostChangedGroups) break;
      std::vector<std::string> row = {
          Printable(group.name), absl::StrCat(group.changed, " of ", group.tensors),
          Relative(group.squares_change, group.squares_a),
          group.rows > 0 ? absl::StrCat(group.rows_still, " of ", group.rows) : "-"};
      if (changes_.with_before) {
        row.push_back(
            group.before > 0
                ? absl::StrFormat("%.3f", group.along / std::sqrt(group.before * group.with_before))
                : "-");
      }
      rows.push_back(std::move(row));
    }
    out_ += TextColumns(rows, false);
    if (groups.size() > kMostChangedGroups)
      Line(2, absl::StrCat("and ", groups.size() - kMostChangedGroups, " more"));
  }

  // Writes the tensors of one kind with the largest relative change.
  void Moved(const char* heading, TensorKind kind) {
    std::vector<const TensorChange*> moved;
    for (const TensorChange& change : changes_.tensors) {
      if (change.kind == kind && change.wrong.empty() && change.differ > 0)
        moved.push_back(&change);
    }
    if (moved.empty()) return;
    std::stable_sort(moved.begin(), moved.end(), [](const TensorChange* x, const TensorChange* y) {
      return x->relative() > y->relative();
    });
    Heading(heading);
    for (size_t i = 0; i < moved.size() && i < kMostMoved; ++i) Tensor(*moved[i]);
    if (moved.size() > kMostMoved)
      Line(2, absl::StrCat("and ", moved.size() - kMostMoved, " more"));
  }

  // Writes one tensor: the size of its change, where it is largest, which rows, along which
  // directions.
  void Tensor(const TensorChange& change) {
    std::string text = absl::StrCat(
        change.name, change.name_b == change.name ? "" : absl::StrCat(" (B's ", change.name_b, ")"),
        "  [", absl::StrJoin(change.shape, ", "), "] ", change.dtype_a,
        change.dtype_b == change.dtype_a ? "" : absl::StrCat(" to ", change.dtype_b), ": ");
    absl::StrAppendFormat(&text, "|change|/|A| %s, %d of %d elements",
                          Relative(change.squares_change, change.squares_a), change.differ,
                          change.count);
    if (change.cosine) absl::StrAppendFormat(&text, ", cosine %.3f", *change.cosine);
    if (change.non_finite > 0)
      absl::StrAppendFormat(&text, ", %d NaN or infinite", change.non_finite);
    Line(2, text);
    if (change.largest > 0) {
      Line(6, absl::StrFormat("most at [%s]: %s to %s", absl::StrJoin(change.largest_at, ", "),
                              ShortNumber(change.largest_a), ShortNumber(change.largest_b)));
    }
    if (!change.most.empty()) {
      std::vector<std::string> rows;
      for (const MovedRow& row : change.most)
        rows.push_back(absl::StrFormat("%d (%s)", row.row,
                                       Relative(row.change * row.change, row.weight * row.weight)));
      Line(6, absl::StrFormat("rows that changed most: %s; unchanged %d of %d",
                              absl::StrJoin(rows, ", "), change.rows_still, change.rows));
    }
    if (!change.spectrum.empty()) {
      std::vector<std::string> values;
      double squares = 0;
      for (const SingularValue& one : change.spectrum) {
        values.push_back(absl::StrFormat("%.4g ± %.1g", one.value, one.error));
        squares += one.value * one.value;
      }
      Line(6, absl::StrFormat("singular values of the change: %s: %.0f %% of its squares",
                              absl::StrJoin(values, ", "), 100 * squares / change.squares_change));
    }
  }

  // Lists the tensors that could not be compared, with the reason.
  void NotCompared() {
    bool headed = false;
    for (const TensorChange& change : changes_.tensors) {
      if (change.wrong.empty()) continue;
      if (!headed) Heading("Not compared");
      headed = true;
      Line(2, absl::StrCat(change.name, ": ", change.wrong));
    }
  }

  const CheckpointChanges& changes_;
};

}  // namespace

std::string ChangesText(const CheckpointSide& a, const CheckpointSide& b,
                        const CheckpointChanges& changes, const TextStyle& style) {
  return ChangesWriter(changes, style).Render(a, b);
}

}  // namespace plumbline::audit
