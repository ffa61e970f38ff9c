#include <cmath>
#include <nlohmann/json.hpp>

#include "audit/ledger/ledger_result.h"
#include "audit/ledger/words.h"
#include "audit/render/finding_json.h"
#include "audit/render/text_util.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) {
  if (!std::isfinite(value)) return ExactNumber(value);
  return value;
}

// A 90 % interval as factors.
Json IntervalJson(double ln, double variance) {
  const double wide = HalfInterval(variance);
  return {Number(std::exp(ln - wide)), Number(std::exp(ln + wide))};
}

Json FromProduct(const ledger::Product& product) {
  return {{"value", Number(std::exp(product.ln))},
          {"seeds", IntervalJson(product.ln, product.seeds_variance)},
          {"all", IntervalJson(product.ln, product.all_variance)},
          {"factors", product.factors},
          {"shared_bias", Number(product.shared_bias)}};
}

Json FromMultiplier(const ledger::Multiplier& m, const ledger::MultiplierEstimate& e) {
  return {{"name", ValidUtf8(m.name)}, {"y", Number(e.worth.y)},       {"sd", Number(e.sd)},
          {"s", Number(e.s)},          {"claimed", Number(m.claimed)}, {"kept", m.kept}};
}

Json FromStack(const ledger::StackEstimate& stack) {
  Json leave_outs = Json::array();
  for (const ledger::LeaveOutEstimate& l : stack.leave_outs) {
    leave_outs.push_back({{"name", ValidUtf8(l.name)},
                          {"value", Number(std::exp(l.ln))},
                          {"all", IntervalJson(l.ln, l.sd * l.sd)},
                          {"smallest_shown", Number(std::exp(l.detectable))}});
  }
  return {{"value", Number(std::exp(stack.ln))},
          {"all", IntervalJson(stack.ln, stack.sd * stack.sd)},
          {"y", Number(stack.ln)},
          {"sd", Number(stack.sd)},
          {"flops", Number(stack.flops)},
          {"claimed", Number(std::exp(stack.claimed))},
          {"overstated", Number(stack.overstated())},
          {"leave_out", leave_outs}};
}

Json FromNext(const ledger::NextRuns& next) {
  static constexpr const char* kKinds[] = {"pair", "baseline", "stack"};
  return {{"kind", kKinds[static_cast<int>(next.kind)]},
          {"name", ValidUtf8(next.name)},
          {"scale", Number(next.scale)},
          {"flops", Number(next.flops)},
          {"variance", Number(next.before)},
          {"then", Number(next.after)}};
}

Json FromNoise(const LedgerResult& result) {
  const ledger::Estimate& e = result.estimate;
  return {{"sigma", Number(e.noise)},
          {"freedom", e.freedom},
          {"floor", Number(e.baseline.floor)},
          {"alpha", Number(e.baseline.alpha)},
          {"relative_error", Number(e.relative_error)},
          {"gain", Number(e.gain)}};
}

Json FromAllowances(const ledger::Allowances& a) {
  return {{"scale", Number(a.scale)},
          {"target", Number(a.target)},
          {"small", Number(a.small)},
          {"large", Number(a.large)}};
}

}  // namespace

std::string LedgerJson(const LedgerResult& result) {
  const ledger::Ledger& ledger = result.file.ledger;
  Json json;
  json["schema"] = "plumbline.ledger/1";
  json["tool_version"] = BuildVersion();
  json["multipliers"] = Json::array();
  for (size_t i = 0; i < ledger.multipliers.size(); ++i)
    json["multipliers"].push_back(
        FromMultiplier(ledger.multipliers[i], result.estimate.multipliers[i]));
  json["product"] = FromProduct(result.estimate.product);
  json["without_flagged"] = FromProduct(result.without_flagged);
  json["stack"] = result.estimate.stack ? FromStack(*result.estimate.stack) : Json();
  json["noise"] = FromNoise(result);
  json["assumptions"] = FromAllowances(result.allowances);
  json["assumptions"]["tried_said"] = ledger.tried.has_value();
  json["next"] = Json::array();
  for (const ledger::NextRuns& next : result.next) json["next"].push_back(FromNext(next));
  json["findings"] = Json::array();
  for (const v1::Finding* finding : result.findings())
    json["findings"].push_back(FindingValue(*finding));
  json["verdicts"] = Json::array();
  for (const v1::Verdict& verdict : result.verdicts)
    json["verdicts"].push_back(VerdictValue(verdict));
  return TerminalSafeJson(json.dump(2)) + "\n";
}

}  // namespace plumbline::audit
