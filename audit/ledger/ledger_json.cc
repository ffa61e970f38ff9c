#include <cmath>
#include <nlohmann/json.hpp>

#include "audit/ledger/ledger_result.h"
#include "audit/ledger/words.h"
#include "audit/render/finding_json.h"
#include "audit/render/json_values.h"
#include "audit/render/text_util.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

// Returns a 90 % interval as factors.
Json IntervalJson(double ln, double variance) {
  const double wide = HalfInterval(variance);
  return {JsonNumber(std::exp(ln - wide)), JsonNumber(std::exp(ln + wide))};
}

Json FromProduct(const ledger::Product& product) {
  return {{"value", JsonNumber(std::exp(product.ln))},
          {"seeds", IntervalJson(product.ln, product.seeds_variance)},
          {"all", IntervalJson(product.ln, product.all_variance)},
          {"factors", product.factors},
          {"shared_bias", JsonNumber(product.shared_bias)}};
}

Json FromMultiplier(const ledger::Multiplier& m, const ledger::MultiplierEstimate& e) {
  return {{"name", ValidUtf8(m.name)}, {"y", JsonNumber(e.worth.y)},       {"sd", JsonNumber(e.sd)},
          {"s", JsonNumber(e.s)},      {"claimed", JsonNumber(m.claimed)}, {"kept", m.kept}};
}

Json FromStack(const ledger::StackEstimate& stack) {
  Json leave_outs = Json::array();
  for (const ledger::LeaveOutEstimate& l : stack.leave_outs) {
    leave_outs.push_back({{"name", ValidUtf8(l.name)},
                          {"value", JsonNumber(std::exp(l.ln))},
                          {"all", IntervalJson(l.ln, l.sd * l.sd)},
                          {"smallest_shown", JsonNumber(std::exp(l.detectable))}});
  }
  return {{"value", JsonNumber(std::exp(stack.ln))},
          {"all", IntervalJson(stack.ln, stack.sd * stack.sd)},
          {"y", JsonNumber(stack.ln)},
          {"sd", JsonNumber(stack.sd)},
          {"flops", JsonNumber(stack.flops)},
          {"claimed", JsonNumber(std::exp(stack.claimed))},
          {"overstated", JsonNumber(stack.overstated())},
          {"leave_out", leave_outs}};
}

Json FromNext(const ledger::NextRuns& next) {
  static constexpr const char* kKinds[] = {"pair", "baseline", "stack"};
  return {{"kind", kKinds[static_cast<int>(next.kind)]},
          {"name", ValidUtf8(next.name)},
          {"scale", JsonNumber(next.scale)},
          {"flops", JsonNumber(next.flops)},
          {"variance", JsonNumber(next.before)},
          {"then", JsonNumber(next.after)}};
}

Json FromNoise(const LedgerResult& result) {
  const ledger::Estimate& e = result.estimate;
  return {{"sigma", JsonNumber(e.noise)},
          {"freedom", e.freedom},
          {"floor", JsonNumber(e.baseline.floor)},
          {"alpha", JsonNumber(e.baseline.alpha)},
          {"relative_error", JsonNumber(e.relative_error)},
          {"gain", JsonNumber(e.gain)}};
}

Json FromAllowances(const ledger::Allowances& a) {
  return {{"scale", JsonNumber(a.scale)},
          {"target", JsonNumber(a.target)},
          {"small", JsonNumber(a.small)},
          {"large", JsonNumber(a.large)}};
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
