#include "rules/causes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

namespace plumbline::rules {
namespace {

// Rules that report one fault, causes first, and how far apart its findings may begin.
struct Family {
  std::span<const std::string_view> rules;
  int64_t before;  // steps that a symptom may begin before its root is seen
  int64_t after;   // ... and after it
  bool lasts;      // `after` counts from the root's last step
  // If set, the cause that a finding of each rule must have; an empty one matches all.
  std::span<const std::string_view> causes = {};
  bool first_is_root = false;  // only findings of the first rule have symptoms
  // If set, this number of the first rule's details is the last step in which the root was observed
  // without the fault: symptoms may begin after it.
  std::string_view clean_step = "";
};

// A weight, gradient or activation that is not finite makes the loss non-finite.
constexpr std::string_view kNonFinite[] = {"precision/non-finite", "health/loss-non-finite",
                                           "health/loss-scale"};
// Errors of the update first, then what they do to the loss, then what follows from that.
constexpr std::string_view kTraining[] = {"precision/stale-gradient", "health/accumulation-scale",
                                          "health/learning-rate",     "health/loss-divergence",
                                          "health/loss-spike",        "health/gradient-spike",
                                          "health/update-ratio",      "health/loss-scale"};
// Gradients that are never cleared grow in all later steps, although the rule needs only two of
// them.
constexpr std::string_view kNotCleared[] = {"precision/stale-gradient", "health/loss-divergence",
                                            "health/loss-spike", "health/gradient-spike",
                                            "health/update-ratio"};
constexpr std::string_view kNotClearedCauses[] = {"not-cleared", "", "", "", ""};
// Without a sum over the ranks, most elements of some tensors differ, and a part of others.
constexpr std::string_view kReplicas[] = {"precision/replica-divergence"};
constexpr std::string_view kData[] = {"performance/idle-comb", "performance/data-stall"};
constexpr std::string_view kDataCauses[] = {"data-loading", "data-loading"};
// DeepSpeed logs 0 as the loss, the gradient norm and the rate of a step that its scaler skipped.
constexpr std::string_view kStorm[] = {"health/loss-scale", "health/loss-non-finite",
                                       "health/gradient-vanish", "health/learning-rate"};
constexpr std::string_view kStormCauses[] = {"overflow-storm", "no-labels", "no-gradient",
                                             "few-digits"};
constexpr int64_t kAnySteps = int64_t{1} << 53;
// If nothing is trained, the gradient is zero and the loss stays flat.
constexpr std::string_view kUntrained[] = {"health/no-gradient",      "health/no-gradient",
                                           "health/unchanged-tensor", "health/gradient-vanish",
                                           "health/not-learning",     "health/not-learning"};
constexpr std::string_view kUntrainedCauses[] = {
    "no-step",     "not-in-optimizer",        "adapters-not-trained",
    "no-gradient", "flat-from-the-beginning", "no-update"};
// If a rank died, the others wait for it.
constexpr std::string_view kEnd[] = {"health/run-died", "performance/hang",
                                     "health/hang-between-steps"};

constexpr Family kFamilies[] = {
    {kNonFinite, 4, 16, false, {}, false, "clean_step"},
    {kNotCleared, 8, kAnySteps, true, kNotClearedCauses, true},
    {kTraining, 8, 8, true},
    {kReplicas, 8, 8, false},
    {kData, 64, 64, true, kDataCauses},
    {kEnd, 4, 4, false},
    {kStorm, kAnySteps, 16, true, kStormCauses, true},
    {kUntrained, kAnySteps, kAnySteps, true, kUntrainedCauses},
};

// Returns the place of the finding's rule in the family; its size if it is in another family.
size_t PlaceIn(const Family& family, const v1::Finding& finding) {
  for (size_t i = 0; i < family.rules.size(); ++i) {
    const std::string_view cause = family.causes.empty() ? "" : family.causes[i];
    if (family.rules[i] == finding.rule() && (cause.empty() || cause == finding.cause().id()))
      return i;
  }
  return family.rules.size();
}

// Returns the first step in which a symptom of `root` may begin.
int64_t EarliestStep(const Family& family, const v1::Finding& root) {
  const int64_t near = root.site().step_first() - family.before;
  if (family.clean_step.empty() || root.rule() != family.rules[0]) return near;
  const auto& fields = root.details().fields();
  const auto clean = fields.find(std::string(family.clean_step));
  if (clean == fields.end()) return near;
  return std::min(near, static_cast<int64_t>(clean->second.number_value()) + 1);
}

bool Near(const Family& family, const v1::Finding& root, const v1::FindingSite& symptom) {
  const int64_t end = family.lasts ? root.site().step_last() : root.site().step_first();
  return symptom.step_first() >= EarliestStep(family, root) &&
         symptom.step_first() <= end + family.after;
}

class Folding {
 public:
  explicit Folding(const std::vector<const v1::Finding*>& shown)
      : shown_(shown), roots_(shown.size()) {
    std::iota(roots_.begin(), roots_.end(), size_t{0});
  }

  // Folds the findings of one run.
  void Fold(const Family& family, const std::vector<size_t>& of_run) {
    std::vector<size_t> members;
    for (const size_t i : of_run) {
      if (roots_[i] == i && PlaceIn(family, *shown_[i]) < family.rules.size()) members.push_back(i);
    }
    std::sort(members.begin(), members.end(),
              [&](size_t a, size_t b) { return Before(family, *shown_[a], *shown_[b]); });
    for (size_t i = 0; i < members.size(); ++i) {
      if (roots_[members[i]] != members[i]) continue;
      if (family.first_is_root && PlaceIn(family, *shown_[members[i]]) > 0) continue;
      for (size_t j = i + 1; j < members.size(); ++j) {
        if (roots_[members[j]] != members[j]) continue;
        if (Near(family, *shown_[members[i]], shown_[members[j]]->site()))
          Move(members[j], members[i], of_run);
      }
    }
  }
  std::vector<size_t> Take() { return std::move(roots_); }

 private:
  static bool Before(const Family& family, const v1::Finding& a, const v1::Finding& b) {
    const auto key = [&](const v1::Finding& f) {
      return std::make_tuple(-static_cast<int>(f.level()), PlaceIn(family, f),
                             -static_cast<int>(f.strength()), f.site().step_first(),
                             std::string_view(f.fingerprint()));
    };
    return key(a) < key(b);
  }
  // Gives a finding and its symptoms another root.
  void Move(size_t from, size_t to, const std::vector<size_t>& of_run) {
    for (const size_t i : of_run) {
      if (roots_[i] == from) roots_[i] = to;
    }
  }

  const std::vector<const v1::Finding*>& shown_;
  std::vector<size_t> roots_;
};

}  // namespace

std::vector<size_t> RootsOf(const std::vector<const v1::Finding*>& shown) {
  std::map<std::string_view, std::vector<size_t>> by_run;
  for (size_t i = 0; i < shown.size(); ++i) {
    if (!shown[i]->suppressed()) by_run[shown[i]->site().run()].push_back(i);
  }
  Folding folding(shown);
  for (const auto& [run, of_run] : by_run) {
    for (const Family& family : kFamilies) folding.Fold(family, of_run);
  }
  return folding.Take();
}

}  // namespace plumbline::rules
