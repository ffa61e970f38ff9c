#include "analysis/routing/train_infer/other_rule.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "analysis/routing/call/call.h"
#include "base/real.h"
#include "base/router/scores.h"

namespace plumbline::analysis {
namespace {

using Experts = std::set<int32_t>;

Experts ChosenBy(const RoutedToken& t) { return {t.chosen.begin(), t.chosen.end()}; }

// Returns `rule` as it applies to the recorded scores of `holder`.
RouterRule Applied(const RoutedSide& holder, const RecordedRule& rule) {
  RouterRule out{.experts = holder.experts,
                 .top_k = holder.top_k,
                 .dtype = static_cast<DType>(holder.rule.dtype),
                 .has_bias = !rule.bias.empty(),
                 .groups = rule.groups,
                 .top_groups = rule.top_groups,
                 .group_score = static_cast<GroupScore>(rule.group_score)};
  // A function alone does not change the order.
  if (holder.rule.logits && !rule.plain())
    out.function = static_cast<ScoreFunction>(rule.logits ? rule.function : holder.rule.function);
  return out;
}

// Applies both rules to the rows that `holder` recorded.
class RuleTrial {
 public:
  RuleTrial(const RoutedSide& holder, const RoutedSide& other)
      : holder_(holder),
        other_(other),
        own_rule_(Applied(holder, holder.rule)),
        other_rule_(Applied(holder, other.rule)) {}

  // `out` counts. Returns false if a recorded choice contradicts its own side's rule.
  bool Run(RuleDifference* out) {
    auto b = other_.tokens.begin();
    for (const RoutedToken& a : holder_.tokens) {
      while (b != other_.tokens.end() && b->key < a.key) ++b;
      if (b == other_.tokens.end()) break;
      if (b->key == a.key && !a.row.empty() && !Take(a, *b, out)) return false;
    }
    return true;
  }

 private:
  static bool Complete(const RoutedToken& t) {
    return std::find(t.chosen.begin(), t.chosen.end(), int16_t{-1}) == t.chosen.end();
  }

  // Returns the choice of a row, empty if the recorded precision does not decide it.
  Experts Choose(const RouterRule& rule, const RecordedRule& recorded, const RoutedToken& t) {
    x_.assign(t.row.begin(), t.row.end());
    ChooseExperts(rule, x_.data(), rule.has_bias ? recorded.bias.data() : nullptr, scratch_.get(),
                  &choice_);
    if (!choice_.finite || choice_.tied) return {};
    return {choice_.expert, choice_.expert + choice_.count};
  }

  bool Take(const RoutedToken& a, const RoutedToken& b, RuleDifference* out) {
    if (!Complete(a) || !Complete(b) || a.tied || b.tied) return true;
    const auto k = static_cast<size_t>(other_.top_k);
    if (b.ranked.size() < k) return true;
    const Experts own = Choose(own_rule_, holder_.rule, a);
    const Experts by_other = Choose(other_rule_, other_.rule, a);
    if (own.empty() || by_other.empty()) return true;
    ++out->tokens;
    const Experts chosen = ChosenBy(a), there = ChosenBy(b);
    Experts there_by_scores;
    for (size_t i = 0; i < k; ++i) there_by_scores.insert(b.ranked[i].expert);
    if (chosen != own || there != there_by_scores) return false;
    if (own == by_other) return true;
    ++out->moved;
    out->alike += there == own;
    if (there != by_other) return true;
    if (out->shown++ == 0) {
      out->train = a;
      out->infer = b;
    }
    return true;
  }

  const RoutedSide& holder_;
  const RoutedSide& other_;
  RouterRule own_rule_, other_rule_;
  RouterChoice choice_;
  std::vector<double> x_;
  std::unique_ptr<RouterScratch> scratch_ = std::make_unique<RouterScratch>();
};

// Names the parts in which the rules differ, and the side that has each part.
void Name(const RecordedRule& train, const RecordedRule& infer, RuleDifference* out) {
  std::vector<std::string> texts;
  const auto part = [&](const char* name, bool differs, bool by_train, bool by_infer) {
    if (!differs) return;
    absl::StrAppend(&out->parts, out->parts.empty() ? "" : " and ", name);
    out->one_sided = out->one_sided || by_train != by_infer;
    texts.push_back(
        by_train == by_infer
            ? absl::StrCat("the sides use different ", name)
            : absl::StrCat("only ", by_train ? "training" : "inference", " uses ", name));
  };
  part("bias", train.bias != infer.bias, !train.bias.empty(), !infer.bias.empty());
  part("groups",
       train.groups != infer.groups || train.top_groups != infer.top_groups ||
           train.group_score != infer.group_score,
       train.groups > 0, infer.groups > 0);
  const bool function = train.logits && infer.logits && train.function != infer.function;
  if (out->parts.empty()) part("score functions", function, true, true);
  for (const std::string& text : texts)
    absl::StrAppend(&out->text, out->text.empty() ? "" : ", ", text);
}

ScoreFunction FunctionOf(const RoutedSide& a, const RoutedSide& b) {
  const RecordedRule& after = a.rule.logits ? b.rule : a.rule;
  const RecordedRule& before = a.rule.logits ? a.rule : b.rule;
  return static_cast<ScoreFunction>(after.function != 0 ? after.function : before.function);
}

}  // namespace

bool RuleDifference::proved() const {
  const uint64_t both = shown + alike;
  double tail = 0;  // the probability of at least `shown` by tosses of a coin
  for (uint64_t n = shown; n <= both; ++n) {
    tail += std::exp2(Log2Choose(static_cast<double>(both), static_cast<double>(n)) -
                      static_cast<double>(both));
  }
  return tail < 0x1p-19;
}

RuleDifference CompareRules(const RoutedSide& train, const RoutedSide& infer) {
  RuleDifference out;
  const bool comparable = train.rule.scores && infer.rule.scores && train.one_rule &&
                          infer.one_rule && train.experts == infer.experts &&
                          train.top_k == infer.top_k;
  if (!comparable || train.rule == infer.rule) return out;
  Name(train.rule, infer.rule, &out);
  if (out.parts.empty()) return out;
  RuleDifference counted[2] = {out, out};
  const bool contradicted =
      !RuleTrial(train, infer).Run(&counted[0]) || !RuleTrial(infer, train).Run(&counted[1]);
  if (contradicted) return out;
  if (counted[1].shown > counted[0].shown) {
    std::swap(counted[1].train, counted[1].infer);
    return counted[1];
  }
  return counted[0];
}

bool SameButForFunction(const RoutedSide& train, const RoutedSide& infer) {
  const bool plain = train.rule.scores && infer.rule.scores && train.one_rule && infer.one_rule &&
                     train.rule.plain() && infer.rule.plain();
  return plain && train.rule.logits != infer.rule.logits &&
         FunctionOf(train, infer) != ScoreFunction::kIdentity;
}

RoutedSide InLogits(const RoutedSide& side, const RoutedSide& other) {
  const bool softmax = FunctionOf(side, other) == ScoreFunction::kSoftmax;
  const auto value = [&](const RoutedToken& t, double v) {
    if (side.rule.logits) return softmax ? v - t.log_sum : v;
    return softmax ? std::log(v) : std::log(v) - std::log1p(-v);
  };
  RoutedSide out = side;
  out.kind = "logits";
  const auto k = static_cast<size_t>(side.top_k);
  for (RoutedToken& t : out.tokens) {
    for (EdgeScore& e : t.ranked) {
      const double v = value(t, double{e.value});
      e.value = static_cast<float>(std::isnan(v) ? -kInfinity : v);
    }
    if (side.rule.logits) continue;
    t.spread = 0;  // the side with logits has it
    if (t.ranked.size() > k) t.margin = t.ranked[k - 1].value - t.ranked[k].value;
  }
  return out;
}

}  // namespace plumbline::analysis
