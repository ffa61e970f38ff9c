#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/frame/frame.h"
#include "analysis/replicas/replicas.h"
#include "analysis/sample/sample.h"
#include "analysis/weights/weights.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/duplicate-rows

Rows of a weight, or whole experts, are trained and hold the same bits.

**Why.** Two neurons with the same weights in and out get the same gradient, and stay equal: they work as one neuron, at the cost of two. It comes from weights that were made equal (a constant, one
seed for every expert, a copy to which no noise was added) or set equal later (a reset, a merge). Where two of 8 experts are one, an eighth of the experts' parameters is paid for and does nothing.

**Bad.** `layers.2.mlp.up_proj.weight: 2 rows have the same bits in step 2000 and had other, equal ones in step 1000 (rows 17 and 40)`

**Good.** Rows that differ; equal ones that never moved (a constant, a frozen one); zero ones; rows that were zero in the checkpoint before (after one step of Adam from zero they may meet).

**How to fix it.**
- Give every row and expert an initialisation of its own: `torch.nn.init.normal_` over the whole tensor, another seed for each expert.
- Copies on purpose (upcycled experts): add noise to them, or let the router's noise make them different, before the first step.
- Key-value heads that are repeated on purpose: `--set health/duplicate-rows.repeats='*.k_proj.weight'` (again for more).

**What it checks.** The rows of a weight (one index of its first axis: a neuron, a filter, an expert of a stacked tensor) of at least 64 elements, by a digest of their bits; beyond 65,536 rows every
n-th. And tensors of one shape whose names differ in the number of an expert or head (`experts.3.w1`, `experts.4.w1`). Two count where they have the same bits and are not zero, and the checkpoint
before shows that they changed: they were equal then too and had other bits (never different; for rows a note, because words that never occur never become different; for whole experts a warning), or
they differed then (set equal: a warning).

**Strength.** `proved`: two different rows share a digest of 63 bits once in 10¹⁰ weights.

**Inconclusive when** only one checkpoint has equal rows, values are NaN or infinite, equal rows are in a table of words or positions (words that never occur never become different), or in a
projection to keys or values that is not declared (grouped heads are repeated on purpose).

**What it cannot see.** Copies up to a sign, a scale or a permutation; rows below 64 elements; more than 4,096 equal or zero rows of a weight.

**Cost.** Reading the weight once, which the statistics do; 16 bytes an equal row.

**Sources.** Goodfellow, Bengio and Courville, "Deep Learning", 2016, section 8.4: breaking symmetry.
)page";

constexpr OptionInfo kOptions[] = {
    {.name = "repeats",
     .type = OptionInfo::Type::kText,
     .unit = "patterns of names",
     .default_value = "",
     .reason = "tensors with repeated rows on purpose are listed here"},
};

constexpr RuleInfo kInfo = {"health/duplicate-rows",
                            "rows of a weight are trained as copies",
                            v1::LEVEL_WARNING,
                            "0.1.0",
                            kPage,
                            kOptions};

constexpr size_t kMostReportedRows = 4096;  // with this many, a checkpoint may have omitted some
constexpr size_t kMostRowWeights = size_t{1} << 18;
constexpr uint64_t kFewestOfExpert = 64;  // elements

using RowDigestMap = std::map<int64_t, int64_t>;  // by row; 0 for a row of zeros

// A weight of one rank in one step.
struct RowLook {
  bool reported = false;  // its rows were recorded
  int64_t rows = 0;
  RowDigestMap equal;  // rows with the digest of another row, and rows of zeros
  bool observed = false;
  std::vector<int64_t> shape;
  Digest whole;
  uint64_t count = 0;
  bool zero = false, poisoned = false;
};

// A weight of one rank over all steps.
struct RowCourse {
  bool known = false;
  int64_t rows = 0;
  RowDigestMap equal;
  Digest whole;
  int64_t step = 0;  // step of `equal`
  int64_t step_first = 0, step_last = 0;
  uint64_t steps = 0, with_equal = 0, poisoned = 0;
  bool reported = false, table = false, keys = false;
  void Persist(Archive& a) {
    a(known, rows, equal, whole, step, step_first, step_last, steps, with_equal, poisoned, reported,
      table, keys);
  }
};

// Rows that changed and are now equal. For experts: positions in the order of their numbers.
struct EqualRows {
  std::vector<int64_t> never_apart, set_equal;
  bool any() const { return !never_apart.empty() || !set_equal.empty(); }
};

// Groups rows of one digest by the digest they had before: 0 for zeros, nullopt if unknown.
void SortByBefore(const std::vector<int64_t>& rows, int64_t digest,
                  const std::vector<std::optional<int64_t>>& before, EqualRows* out) {
  std::map<int64_t, std::vector<int64_t>> by_digest;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (before[i] && *before[i] != 0) by_digest[*before[i]].push_back(rows[i]);
  }
  for (const auto& [old, same] : by_digest) {
    if (old != digest && same.size() > 1)
      out->never_apart.insert(out->never_apart.end(), same.begin(), same.end());
  }
  if (by_digest.size() < 2) return;
  for (const auto& [old, same] : by_digest)
    out->set_equal.insert(out->set_equal.end(), same.begin(), same.end());
}

EqualRows FindEqualRows(const RowLook& look, const RowCourse& course) {
  EqualRows out;
  std::map<int64_t, std::vector<int64_t>> groups;
  for (const auto& [row, digest] : look.equal) {
    if (digest != 0) groups[digest].push_back(row);
  }
  const bool all_reported = course.equal.size() < kMostReportedRows;
  for (const auto& [digest, rows] : groups) {
    std::vector<std::optional<int64_t>> before;
    for (const int64_t row : rows) {
      const auto at = course.equal.find(row);
      // The row was equal to no other before, so any digest that no other row has will do.
      const std::optional<int64_t> alone =
          all_reported ? std::optional<int64_t>(-1 - row) : std::nullopt;
      before.push_back(at == course.equal.end() ? alone : at->second);
    }
    SortByBefore(rows, digest, before, &out);
  }
  std::sort(out.never_apart.begin(), out.never_apart.end());
  std::sort(out.set_equal.begin(), out.set_equal.end());
  return out;
}

class DuplicateRows : public Rule {
 public:
  explicit DuplicateRows(const Options& options)
      : repeats_(
            absl::StrSplit(options.Text("repeats"), absl::ByAnyChar(" ,\n"), absl::SkipEmpty())) {}

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    for (const Item& item : step.items) {
      if (!item.evidence->has_tensor()) continue;
      const v1::TensorState& state = item.evidence->tensor();
      const RowKey key{item.source->rank(), step.site.layer()};
      if (state.role() == "row-digests") TakeRows(state, &open_[key]);
      if (state.role() == "weight" && state.has_summary()) TakeWhole(state, &open_[key]);
    }
  }

  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (open_.empty()) return;
    for (const auto& [key, look] : open_) {
      if (look.reported && !OnPurpose(key.second)) JudgeRows(step, key, look, out);
    }
    JudgeExperts(step, out);
    for (const auto& [key, look] : open_) Keep(step, key, look);
    open_.clear();
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& [key, course] : courses_) {
      const auto& [role, rank, name] = key;
      if (course.reported || course.steps + course.poisoned == 0 || OnPurpose(name)) continue;
      v1::Verdict verdict = Rest(course);
      Put(*verdict.mutable_details(), "steps", static_cast<double>(course.steps));
      SetPlace(verdict, name, "weight", course.step_first, course.step_last,
               std::vector<uint32_t>{rank});
      out.Add(std::move(verdict));
    }
  }

  // open_ is not stored, because it is empty between steps.
  void Persist(Archive& archive) override {
    archive.Version(1);
    archive(courses_);
  }

 private:
  using RowKey = std::pair<uint32_t, std::string>;  // rank, layer

  static void TakeRows(const v1::TensorState& state, RowLook* look) {
    if (state.shape_size() != 1) return;
    const v1::TensorSample& sample = state.sample();
    const int64_t equal = sample.values().shape_size() == 1 ? sample.values().shape(0) : 0;
    const auto digests = Column("values", state.has_sample(), sample.values(), equal);
    const auto rows = Column("offsets", state.has_sample(), sample.offsets(), equal);
    if (!digests.ok() || !rows.ok() || rows->size() != digests->size()) return;
    look->reported = true;
    look->rows = state.shape(0);
    look->equal.clear();
    for (size_t i = 0; i < rows->size(); ++i) look->equal[(*rows)[i]] = (*digests)[i];
  }

  static void TakeWhole(const v1::TensorState& state, RowLook* look) {
    const v1::TensorSummary& s = state.summary();
    look->observed = true;
    look->shape.assign(state.shape().begin(), state.shape().end());
    look->whole = {s.digest_low(), s.digest_high()};
    look->count = s.count();
    look->zero = s.zero() == s.count();
    look->poisoned = s.nan() + s.pos_inf() + s.neg_inf() > 0;
  }

  bool OnPurpose(const std::string& name) const {
    return std::any_of(repeats_.begin(), repeats_.end(),
                       [&](const std::string& glob) { return GlobMatch(glob, name); });
  }

  // Returns nullptr if the weight is not known yet.
  RowCourse* Find(const StepEnd& step, const RowKey& key) {
    const auto at = courses_.find({step.role, key.first, key.second});
    return at == courses_.end() ? nullptr : &at->second;
  }

  void JudgeRows(const StepEnd& step, const RowKey& key, const RowLook& look, VerdictSink& out) {
    RowCourse* course = Find(step, key);
    if (course == nullptr || !course->known || course->reported || look.poisoned) return;
    if (course->rows != look.rows || course->step >= step.step) return;
    const EqualRows equal = FindEqualRows(look, *course);
    if (!equal.any()) return;
    const std::string& name = key.second;
    course->table = IsWordEmbedding(name) || IsWordHead(name) || IsPositionTable(name);
    course->keys = IsKeyOrValue(name);
    if (course->table || course->keys) return;
    course->reported = true;
    out.Add(Found(step, key, "rows", equal, *course, look));
  }

  // Judges the experts of one layer: tensors whose names differ only in their number.
  void JudgeExperts(const StepEnd& step, VerdictSink& out) {
    std::map<std::tuple<uint32_t, std::string, std::vector<int64_t>>, std::vector<RowKey>> families;
    for (const auto& [key, look] : open_) {
      if (!look.observed || look.poisoned || look.zero || look.count < kFewestOfExpert) continue;
      std::string family = SiblingsOf(key.second);
      if (family.empty() || OnPurpose(key.second)) continue;
      families[{key.first, std::move(family), look.shape}].push_back(key);
    }
    for (const auto& [family, members] : families) JudgeFamily(step, members, out);
  }

  void JudgeFamily(const StepEnd& step, const std::vector<RowKey>& members, VerdictSink& out) {
    std::map<std::pair<uint64_t, uint64_t>, std::vector<size_t>> groups;
    for (size_t i = 0; i < members.size(); ++i) {
      const Digest& whole = open_[members[i]].whole;
      groups[{whole.low, whole.high}].push_back(i);
    }
    for (const auto& [digest, group] : groups) {
      if (group.size() < 2) continue;
      EqualRows equal;
      std::map<std::pair<uint64_t, uint64_t>, std::vector<int64_t>> before;
      for (const size_t i : group) {
        const RowCourse* course = Find(step, members[i]);
        if (course != nullptr && course->known && course->step < step.step)
          before[{course->whole.low, course->whole.high}].push_back(static_cast<int64_t>(i));
      }
      for (const auto& [old, same] : before) {
        if (old != digest && same.size() > 1) equal.never_apart = same;
        if (before.size() > 1)
          equal.set_equal.insert(equal.set_equal.end(), same.begin(), same.end());
      }
      if (equal.any()) ReportFamily(step, members, equal, out);
    }
  }

  void ReportFamily(const StepEnd& step, const std::vector<RowKey>& members, const EqualRows& equal,
                    VerdictSink& out) {
    const std::vector<int64_t>& which =
        equal.never_apart.empty() ? equal.set_equal : equal.never_apart;
    const RowKey& first = members[static_cast<size_t>(which[0])];
    RowCourse* course = Find(step, first);
    if (std::exchange(course->reported, true)) return;
    v1::Verdict verdict = Found(step, first, "tensors", equal, *course, open_[first]);
    std::vector<std::string> names;
    for (const int64_t i : which) {
      const RowKey& member = members[static_cast<size_t>(i)];
      Find(step, member)->reported = true;
      if (names.size() < 8) names.push_back(member.second);
    }
    Put(*verdict.mutable_details(), "tensors", absl::StrJoin(names, " "));
    out.Add(std::move(verdict));
  }

  void Keep(const StepEnd& step, const RowKey& key, const RowLook& look) {
    if (!look.observed) return;
    const bool sibling = !SiblingsOf(key.second).empty();
    if (!look.reported && !sibling) return;
    RowCourse* course = Find(step, key);
    if (course == nullptr) {
      if (courses_.size() >= kMostRowWeights) return;
      course = &courses_[{step.role, key.first, key.second}];
      course->step_first = step.step;
    }
    course->step_last = std::max(course->step_last, step.step);
    if (look.poisoned) {
      ++course->poisoned;
      return;
    }
    ++course->steps;
    const bool equal = std::any_of(look.equal.begin(), look.equal.end(),
                                   [](const auto& row) { return row.second != 0; });
    course->with_equal += equal ? 1 : 0;
    course->known = true;
    course->rows = look.rows;
    course->equal = look.equal;
    course->whole = look.whole;
    course->step = step.step;
  }

  static v1::Verdict Rest(const RowCourse& course) {
    if (course.table)
      return Inconclusive(
          "unused-words: a table of words or positions has equal rows; unused words never become "
          "different");
    if (course.keys)
      return Inconclusive(
          "key-value-heads: rows of keys or values are equal; declare repeated heads (option "
          "repeats)");
    if (course.steps == 0) return Inconclusive("poisoned: NaN or infinite values");
    if (course.with_equal > 0 && course.steps == 1)
      return Inconclusive(
          "one-checkpoint: rows are equal; one checkpoint does not show whether they change "
          "together");
    return Pass(course.with_equal > 0 ? "none of its equal rows changed together"
                                      : "no rows are equal");
  }

  static v1::Verdict Found(const StepEnd& step, const RowKey& key, const char* what,
                           const EqualRows& equal, const RowCourse& course, const RowLook& look) {
    const bool never = !equal.never_apart.empty();
    const std::vector<int64_t>& rows = never ? equal.never_apart : equal.set_equal;
    const bool whole = std::string_view(what) == "tensors";
    const std::string where =
        whole ? absl::StrCat(key.second, " and ", rows.size() - 1, " tensors like it")
              : absl::StrFormat("%s: %d of %d rows (the first: %d and %d)", key.second, rows.size(),
                                look.rows, rows[0], rows[1]);
    // Rows of one weight that were always equal may belong to classes, words or experts that never
    // occur.
    const bool may_be_unused = never && !whole;
    FindingBuilder found(may_be_unused ? v1::LEVEL_NOTE : v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
    found
        .Title(whole           ? "experts are trained as copies of each other"
               : may_be_unused ? "rows change as copies of each other"
                               : kInfo.title)
        .Explain(absl::StrFormat(
            "%s have the same bits as another in step %d; %s in step %d.%s", where, step.step,
            never ? "they were also equal, with other values," : "they differed", course.step,
            may_be_unused ? " Rows of classes, words or experts that never occur behave like this."
                          : ""))
        .Cause(never ? "never-apart" : "set-equal", 0.8)
        .Measured(absl::StrCat(what, " that are a copy and changed"),
                  static_cast<double>(rows.size()), what)
        .Threshold(2, "equal rows that changed are not an accident")
        .Fix(
            never
                ? "Initialise each one independently, or add noise to copies before the first step."
                : "Find what made them equal (a reset, a merge, one part loaded twice), and "
                  "continue from the earlier checkpoint.")
        .Samples(2)
        .Witness("checkpoint_before", static_cast<double>(course.step))
        .Witness("checkpoint", static_cast<double>(step.step))
        .At(key.second, "weight", course.step, step.step, std::vector<uint32_t>{key.first});
    if (!whole) {
      found.Witness("first_row", static_cast<double>(rows[0]))
          .Witness("second_row", static_cast<double>(rows[1]));
    }
    return found.Take();
  }

  std::vector<std::string> repeats_;
  std::map<RowKey, RowLook> open_;  // of this step
  std::map<std::tuple<v1::Role, uint32_t, std::string>, RowCourse> courses_;
};

}  // namespace

CatalogueEntry duplicate_rows() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<DuplicateRows>(options);
          }};
}

}  // namespace plumbline::rules
