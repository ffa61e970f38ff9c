#include "analysis/weights/saved_weights.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/weights/saved_findings.h"
#include "analysis/weights/weight_names.h"

namespace plumbline::analysis {
namespace {

using Change = SavedPair::Change;

constexpr std::string_view kMark = "optimizer.named", kContent = "content.step", kHeldBy = "held";
constexpr std::string_view kBeta = "held.beta2", kSteps = "optimizer.step";
constexpr size_t kMostSaved = size_t{1} << 18;
constexpr uint64_t kFewestElements = 64;  // of a tensor whose bits are compared with earlier ones
constexpr size_t kFewestChanged = 16;     // of its sampled elements

bool IsFollowed(std::string_view op, const v1::TensorState& state) {
  return (op == "weight" && state.role() == "weight") || op == "exp_avg" || op == "exp_avg_sq" ||
         op == "momentum_buffer" || op == "average";
}

bool IsRateOf(std::string_view op) {
  return op == "lr" || op.starts_with("lr.") || op == "learning_rate";
}

// Returns true for tables that are computed, and may return to earlier values.
bool IsTable(std::string_view layer) {
  return HasPart(layer, {"inv_freq", "freqs", "freqs_cis", "cos_cached", "sin_cached", "mask",
                         "attn_mask", "rotary_emb", "queue"});
}

// Returns true if enough elements differ from the checkpoint before to exclude an accidental return
// to earlier bits.
bool DiffersMuch(const SavedPair& pair) {
  const SavedLook& look = *pair.look;
  if (!look.finite || !look.varied || look.count < kFewestElements) return false;
  if (!pair.weight()) return true;  // moments change in every element
  if (pair.past->which != look.which || pair.past->last.size() != look.values.size()) return false;
  size_t differ = 0;
  for (size_t i = 0; i < look.values.size(); ++i)
    differ += pair.past->last[i] != look.values[i] ? 1 : 0;
  return differ >= kFewestChanged;
}

}  // namespace

const SavedPair* SavedRank::Find(std::string_view layer, std::string_view op) const {
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), std::pair(layer, op),
                       [](const SavedPair& a, const auto& key) {
                         return std::pair<std::string_view, std::string_view>(a.layer, a.op) < key;
                       });
  return at != tensors.end() && at->layer == layer && at->op == op ? &*at : nullptr;
}

bool SavedRank::AnyNewWeight() const {
  return std::any_of(tensors.begin(), tensors.end(), [this](const SavedPair& pair) {
    return pair.weight() && pair.change == Change::kNew && !pair.returned && pair.look->floating &&
           IsTrained(pair);
  });
}

bool SavedWeights::ReadsScalar(const v1::Site& site) {
  const std::string& op = site.op();
  return op == kMark || op == kContent || op == kHeldBy || op == kBeta || op == kSteps ||
         IsRateOf(op);
}

// Collects a checkpoint. Sites are sorted by name, so its mark comes before its tensors.
void SavedWeights::Take(const SiteStep& step) {
  for (const Item& item : step.items) {
    const v1::Evidence& evidence = *item.evidence;
    const uint32_t rank = item.source->rank();
    const std::string& op = step.site.op();
    // The name of a rate comes before that of the mark.
    if (evidence.has_scalar() && IsRateOf(op)) {
      const double value = evidence.scalar().value();
      std::optional<double>& rate = rates_[rank];
      rate = std::min(rate.value_or(value), value);
    }
    if (evidence.has_scalar() && op == kMark)
      open_[rank].all_named = evidence.scalar().value() >= 1;
    const auto at = open_.find(rank);
    if (at == open_.end()) continue;
    Open& open = at->second;
    if (evidence.has_scalar()) {
      const double value = evidence.scalar().value();
      if (op == kContent) open.contents[step.site.layer()] = value;
      if (op == kHeldBy) open.rates[step.site.layer()] = value;
      if (op == kBeta) open.betas[step.site.layer()] = value;
      if (op == kSteps) open.steps = value;
    } else if (evidence.has_tensor() && evidence.call() == 0 && IsFollowed(op, evidence.tensor())) {
      open.tensors[{step.site.layer(), op}].Take(evidence.tensor(),
                                                 op == "weight" || op == "exp_avg_sq");
    }
  }
}

SavedRank SavedWeights::Compare(const StepEnd& step, uint32_t rank, Open& open) {
  SavedRank out;
  out.rank = rank;
  for (const auto& [place, look] : open.tensors) {
    const Key key{step.role, rank, place.first, place.second};
    if (tensors_.size() >= kMostSaved && !tensors_.contains(key)) continue;
    SavedPair pair{place.first, place.second, &look, &tensors_[key]};
    const SavedTensor& past = *pair.past;
    if (!past.past.empty()) {
      const std::optional<int64_t> back = past.StepOf(look.digest);
      pair.back_step = back.value_or(0);
      pair.returned = back.has_value();
      pair.change = past.past.back().first == look.digest ? Change::kStill
                    : back && DiffersMuch(pair)           ? Change::kBack
                                                          : Change::kNew;
    }
    out.tensors.push_back(std::move(pair));
  }
  out.rates = std::move(open.rates);
  out.contents = std::move(open.contents);
  out.betas = std::move(open.betas);
  out.steps = open.steps;
  out.rate = rates_[rank];
  out.all_named = open.all_named;
  return out;
}

void SavedWeights::Close(const StepEnd& step, VerdictSink& out) {
  if (open_.empty()) return rates_.clear();
  std::vector<SavedRank> ranks;
  for (auto& [rank, open] : open_) ranks.push_back(Compare(step, rank, open));
  for (SavedRank& rank : ranks) JudgeContents(step, rank, out);
  JudgeReturns(step, ranks, out);
  JudgeStandstill(step, ranks, out);
  JudgeCopied(step, ranks, out);
  JudgeCopies(step, ranks);
  for (SavedRank& rank : ranks) {
    SavedCourse& course = CourseOf(step, rank.rank);
    TakeAdapters(step, rank);
    JudgeEmpty(step, rank, out);
    JudgeMoments(step, rank, out);
    for (v1::Verdict& found : JudgeReplaced(step.step, course, rank))
      Add(std::move(found), step, rank.rank, out);
    for (v1::Verdict& found : JudgeGains(step.step, rank))
      Add(std::move(found), step, rank.rank, out);
  }
  for (SavedRank& rank : ranks) {
    SavedCourse& course = CourseOf(step, rank.rank);
    if (course.checkpoints++ == 0) course.step_first = step.step;
    course.step = step.step;
    course.steps = rank.steps;
    course.moved = rank.AnyNewWeight();
    for (const SavedPair& pair : rank.tensors) pair.past->Keep(*pair.look, step.step);
  }
  open_.clear();
  rates_.clear();
}

void SavedWeights::Add(v1::Verdict verdict, const StepEnd& step, uint32_t rank, VerdictSink& out) {
  if (verdict.finding().level() > v1::LEVEL_NOTE) CourseOf(step, rank).reported = true;
  out.Add(std::move(verdict));
}

// Compares the step that each file states with the one of its name.
void SavedWeights::JudgeContents(const StepEnd& step, SavedRank& rank, VerdictSink& out) {
  const auto name = static_cast<double>(step.step);
  for (const auto& [file, content] : rank.contents) {
    ContentCourse& course = CourseOf(step, rank.rank).contents[file];
    if (content == name) {
      // Both neighbours state their own steps, so the counter was not reset.
      if (course.odd_step && course.equal > 0 && !course.reported) {
        course.reported = true;
        Add(ContentFound(*course.odd_step, *course.last, file, rank.rank), step, rank.rank, out);
      }
      ++course.equal;
      course.odd_step.reset();
    } else if (course.equal > 0 && content < name && !course.odd_step) {
      course.odd_step = step.step;
      rank.older = true;
    } else {
      course.equal = 0;
      course.odd_step.reset();
    }
    course.last = content;
  }
}

// Finds tensors with the bits of an earlier step that was not the newest one.
void SavedWeights::JudgeReturns(const StepEnd& step, std::vector<SavedRank>& ranks,
                                VerdictSink& out) {
  const bool others = std::any_of(ranks.begin(), ranks.end(),
                                  [](const SavedRank& rank) { return rank.AnyNewWeight(); });
  for (SavedRank& rank : ranks) {
    std::map<int64_t, std::vector<const SavedPair*>> groups;
    for (const SavedPair& pair : rank.tensors) {
      const bool trained = !pair.weight() || (rank.IsTrained(pair) && !IsTable(pair.layer));
      if (pair.change == Change::kBack && trained && !pair.past->reported)
        groups[pair.back_step].push_back(&pair);
    }
    for (auto& [back, tensors] : groups) {
      std::stable_sort(tensors.begin(), tensors.end(), [](const SavedPair* a, const SavedPair* b) {
        return a->weight() > b->weight();
      });
      // Averages and moments of a checkpoint that was restored as a whole return, too.
      const ReturnKind kind = others       ? ReturnKind::kPart
                              : rank.older ? ReturnKind::kFile
                                           : ReturnKind::kWhole;
      Add(ReturnFound(kind, step.step, back, tensors, rank.rank), step, rank.rank, out);
      for (const SavedPair* pair : tensors) pair->past->reported = others;
    }
    if (!groups.empty()) {
      for (auto& [file, content] : CourseOf(step, rank.rank).contents)
        content.reported |= rank.older;
    }
  }
}

// Finds a rank whose tensors are those of the checkpoint before, although the tensors of the same
// names changed on other ranks.
void SavedWeights::JudgeStandstill(const StepEnd& step, std::vector<SavedRank>& ranks,
                                   VerdictSink& out) {
  std::map<std::string_view, std::set<uint32_t>> changed;  // ranks by layer
  for (const SavedRank& rank : ranks) {
    for (const SavedPair& pair : rank.tensors) {
      if (pair.weight() && pair.change == Change::kNew) changed[pair.layer].insert(rank.rank);
    }
  }
  for (SavedRank& rank : ranks) {
    SavedCourse& course = CourseOf(step, rank.rank);
    const bool news = rank.AnyNewWeight();
    if (course.stood && news && !course.reported)
      Add(StandstillFound(*course.stood, course.stood_before, rank.rank), step, rank.rank, out);
    course.stood.reset();
    size_t moved = 0, elsewhere = 0, still = 0, tensors = 0;
    for (const SavedPair& pair : rank.tensors) {
      ++tensors;
      still += pair.change == Change::kStill ? 1 : 0;
      if (!pair.weight() || !pair.past->moved) continue;
      ++moved;
      elsewhere += changed.contains(pair.layer) ? 1 : 0;
    }
    const bool stands = course.moved && moved > 0 && still == tensors;
    if (!stands || 2 * elsewhere < moved) {
      // A single rank whose file states an earlier step, with the bits of that step.
      if (stands && rank.older && ranks.size() == 1) {
        Add(StandstillFound(step.step, course.step, rank.rank), step, rank.rank, out);
        for (auto& [file, content] : course.contents) content.reported = true;
      }
      continue;
    }
    if (rank.older) {
      Add(StandstillFound(step.step, course.step, rank.rank), step, rank.rank, out);
      for (auto& [file, content] : course.contents) content.reported = true;
      continue;
    }
    course.stood = step.step;
    course.stood_before = course.step;
  }
}

// Finds weights without elements.
void SavedWeights::JudgeEmpty(const StepEnd& step, const SavedRank& rank, VerdictSink& out) {
  SavedCourse& course = CourseOf(step, rank.rank);
  std::vector<const SavedPair*> empty;
  size_t weights = 0, had = 0;
  for (const SavedPair& pair : rank.tensors) {
    if (!pair.weight()) continue;
    ++weights;
    if (pair.look->count > 0) continue;
    empty.push_back(&pair);
    had += pair.past->count > 0 ? 1 : 0;
  }
  const bool most = empty.size() >= 2 && 2 * empty.size() >= weights;
  if (course.empty_reported || empty.empty() || (!most && had == 0)) return;
  course.empty_reported = true;
  Add(EmptyFound(step.step, empty, weights, rank.rank), step, rank.rank, out);
}

// Finds weights that change although both of their moments are zero in each checkpoint.
void SavedWeights::JudgeMoments(const StepEnd& step, SavedRank& rank, VerdictSink& out) {
  constexpr uint64_t kIntervals = 2;
  for (SavedPair& pair : rank.tensors) {
    if (!pair.weight() || pair.change == Change::kFirst) continue;
    const SavedPair* first = rank.Find(pair.layer, "exp_avg");
    const SavedPair* square = rank.Find(pair.layer, "exp_avg_sq");
    // Moments that were not zero before are reported by health/optimizer-state.
    const bool zero = first != nullptr && square != nullptr && first->look->all_zero() &&
                      square->look->all_zero() && square->past->past.size() <= 1;
    const bool moved = pair.look->comparable() && pair.past->which == pair.look->which &&
                       MovedBeyondDecay(pair.past->last, pair.look->values);
    uint64_t& row = pair.past->without_moments;
    row = zero && moved ? row + 1 : 0;
    if (row < kIntervals || pair.past->reported) continue;
    pair.past->reported = true;
    Add(MomentsFound(step.step, CourseOf(step, rank.rank).step, pair, rank.rank), step, rank.rank,
        out);
  }
}

void SavedWeights::Rest(VerdictSink& out) const {
  constexpr uint64_t kFewest = 3;
  for (const auto& [key, course] : courses_) {
    const bool copied = ReportCopied(key.second, course, out);
    if (ReportAdapters(key, course, out) || copied || course.reported) continue;
    google::protobuf::Struct details;
    Put(details, "checkpoints", static_cast<double>(course.checkpoints));
    v1::Verdict verdict =
        course.checkpoints < kFewest
            ? Inconclusive(absl::StrCat("few-checkpoints: fewer than ", kFewest),
                           std::move(details))
            : Pass(
                  "no tensor has the bits of an earlier step, of another rank or of another tensor",
                  std::move(details));
    SetPlace(verdict, "", "checkpoints", course.step_first, course.step,
             std::vector<uint32_t>{key.second});
    out.Add(std::move(verdict));
  }
}

std::string NamesOf(const std::vector<const SavedPair*>& tensors) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const SavedPair* pair : tensors) {
    if (names.size() < kMostNames) names.push_back(pair->layer);
  }
  return absl::StrJoin(names, " ");
}

}  // namespace plumbline::analysis
