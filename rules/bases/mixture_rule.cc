#include "rules/bases/mixture_rule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::rules {
namespace {

const char* RoleName(v1::Role role) { return role == v1::ROLE_ROLLOUT ? "rollout" : "trainer"; }

}  // namespace

void MixtureRule::Persist(Archive& archive) {
  archive.Version(1);
  archive.MapOf(layers_, [this](const MixtureKey&) { return Layer(window_steps_); });
}

void MixtureRule::Judge(const SiteStep& step, VerdictSink& out) {
  for (const JoinedMixture& joined : *JoinMixture(step)) {
    Layer& layer = layers_.try_emplace(joined.key, window_steps_).first->second;
    Take(step, joined, layer);
    if (joined.step == nullptr || !Usable(*joined.step)) continue;
    const bool enough = layer.window.enough();
    if (!enough && !layer.window.enough_of_all()) continue;
    if (layer.window.experts() < 2 || layer.window.choices() == 0) continue;
    if (auto found =
            enough ? Test(layer.window, layer.fired) : TestOfAll(layer.window, layer.fired)) {
      layer.fired.insert(found->finding().cause().id());
      out.Add(Found(joined.key, layer, *std::move(found)));
    }
  }
}

void MixtureRule::Take(const SiteStep& step, const JoinedMixture& joined, Layer& layer) const {
  if (layer.ranks.empty()) layer.step_first = step.step;
  layer.step_first = std::min(layer.step_first, step.step);
  layer.step_last = std::max(layer.step_last, step.step);
  for (const Item& item : step.items) layer.ranks.insert(item.source->rank());
  layer.gaps.unreadable += joined.gaps.unreadable;
  layer.gaps.repeated += joined.gaps.repeated;
  if (joined.step == nullptr || !Usable(*joined.step)) {
    ++layer.unusable;
  } else {
    layer.window.Take(step.attempt, joined.step);
  }
}

void MixtureRule::JudgeRun(const RunSummary& /*run*/, VerdictSink& out) {
  for (const auto& [key, layer] : layers_) {
    if (layer.fired.empty()) out.Add(Last(key, layer));
  }
}

v1::Verdict MixtureRule::Last(const MixtureKey& key, const Layer& layer) const {
  const MixtureWindow& window = layer.window;
  v1::Verdict verdict;
  if (window.taken() == 0) {
    verdict = Inconclusive(absl::StrCat("no-steps: ", Unusable()));
  } else if (window.experts() < 2) {
    verdict = Inconclusive("one-expert: the layer has one expert, so there is no choice");
  } else if (!window.enough()) {
    verdict = Inconclusive(
        absl::StrCat("few-steps: ", window.steps().size(), " steps were recorded, over a span of ",
                     window.span(), "; the rule needs ", window_steps_, ", or ",
                     MixtureWindow::kFewest, " that are spread evenly over this span"));
  } else if (window.choices() == 0) {
    verdict = Inconclusive("no-choices: no token chose an expert in the last recorded steps");
  } else {
    verdict = Rest(window);
  }
  if (window.experts() >= 2 && window.choices() > 0) Describe(window, *verdict.mutable_details());
  verdict.mutable_site()->set_step_first(layer.step_first);
  verdict.mutable_site()->set_step_last(layer.step_last);
  Complete(key, layer, verdict);
  return verdict;
}

v1::Verdict MixtureRule::Found(const MixtureKey& key, const Layer& layer,
                               FindingBuilder found) const {
  Describe(layer.window, *found.verdict().mutable_details());
  found.verdict().mutable_site()->set_step_first(layer.window.steps().front()->step);
  found.verdict().mutable_site()->set_step_last(layer.window.steps().back()->step);
  found.Samples(layer.window.choices());
  Complete(key, layer, found.verdict());
  return found.Take();
}

void MixtureRule::Complete(const MixtureKey& key, const Layer& layer, v1::Verdict& verdict) const {
  verdict.mutable_site()->set_layer(key.layer);
  verdict.mutable_site()->set_op(key.op);
  for (uint32_t rank : layer.ranks) verdict.mutable_site()->add_ranks(rank);
  google::protobuf::Struct& details = *verdict.mutable_details();
  Put(details, "role", RoleName(key.role));
  Put(details, "mode", key.evaluation ? "eval" : "train");
  Put(details, "steps_seen", static_cast<double>(layer.window.taken()));
  Put(details, "window_steps", static_cast<double>(layer.window.steps().size()));
  Put(details, "experts", static_cast<double>(layer.window.experts()));
  Put(details, "choices", static_cast<double>(layer.window.choices()));
  Put(details, "steps_unusable", static_cast<double>(layer.unusable));
  if (layer.gaps.unreadable > 0)
    Put(details, "unreadable_calls", static_cast<double>(layer.gaps.unreadable));
  if (layer.gaps.repeated > 0)
    Put(details, "repeated_calls", static_cast<double>(layer.gaps.repeated));
}

}  // namespace plumbline::rules
