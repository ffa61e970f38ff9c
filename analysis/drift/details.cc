#include "analysis/drift/details.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/picture/picture.h"

namespace plumbline::analysis {
namespace {

// A count of 0 is left out.
void PutCount(google::protobuf::Struct& s, const char* key, uint64_t count) {
  if (count > 0) Put(s, key, static_cast<double>(count));
}

// A fit needs three points; a slope that is not defined (one abscissa) is left out.
void PutFit(google::protobuf::Struct& s, const char* key, const SlopeFit& fit) {
  if (!(fit.count > 2) || std::isnan(fit.slope)) return;
  google::protobuf::Struct& f = PutStruct(s, key);
  Put(f, "slope", fit.slope);
  Put(f, "standard_error", fit.standard_error);
  Put(f, "r2", fit.r2);
}

}  // namespace

std::string DriftContext(double k3) {
  if (k3 == 0) return "deterministic stacks: exactly 0";
  if (k3 <= 1e-3) return "healthy dense bf16: k3 about 6e-4, mean |d| 0.010 to 0.013";
  if (k3 <= 2e-3) return "healthy mixtures of experts: k3 about 1.5e-3";
  if (k3 <= kDriftHealthy) return "healthy FP8 rollouts: k3 to 3e-3";
  return "no healthy configuration: dense bf16 has k3 about 6e-4, mixtures of experts 1.5e-3, FP8 "
         "rollouts to 3e-3, deterministic stacks 0";
}

void DescribeDrift(const DriftStatistics& s, google::protobuf::Struct& details) {
  // Tokens of the current weights; those of older weights only if there are no others.
  const DriftMoments& m = s.fresh.count() > 0 ? s.fresh : s.stale;
  Put(details, "tokens", static_cast<double>(m.count()));
  Put(details, "sequences", static_cast<double>(s.sequences));
  PutCount(details, "non_finite", s.all().non_finite());
  PutCount(details, "stale_tokens", s.stale_tokens);
  PutCount(details, "later_epochs", s.later_epochs);
  PutCount(details, "copied_sequences", s.copies);
  if (m.count() == 0) return;
  Put(details, "k1", m.k1());
  Put(details, "k2", m.k2());
  Put(details, "k3", m.k3());
  Put(details, "mean_abs", m.mean_abs());
  Put(details, "ess_share", m.ess_share());
  Put(details, "chi_square", std::expm1(m.log_chi_square_plus_1()));
  static constexpr const char* kNames[] = {"tail_1.1", "tail_2", "tail_5", "tail_100"};
  for (size_t i = 0; i < DriftMoments::kTails.size(); ++i) Put(details, kNames[i], m.tail_share(i));
  PutFit(details, "on_entropy", s.slopes.pool().on_entropy.Fit());
  PutFit(details, "on_log_mu", s.slopes.pool().on_rollout.Fit());
  PutFit(details, "on_advantage", s.on_advantage.Fit());
  if (s.rounding_share() > 0) Put(details, "rounding_share", s.rounding_share());
  if (s.rescore_k2.count() > 0) Put(details, "engine_against_itself_k2", s.rescore_k2.mean());
  s.strata.Describe(details);
  Put(details, "context", DriftContext(m.k3()));
}

void DrawDrift(const DriftStatistics& s, v1::Finding& finding) {
  const std::vector<PointSample::Point> points = s.drawn.points();
  if (points.size() < 2) return;
  // The abscissa on which a temperature shows: log pi + H, or log mu if no entropy is recorded.
  const TemperatureMark mark = FindTemperature(s);
  const bool fitted = mark.found() && mark.part.pool();
  const bool by_entropy = fitted ? mark.by_entropy : 2 * s.with_entropy > s.judged;
  std::vector<double> x, y;
  for (const PointSample::Point& point : points) {
    const double at = by_entropy ? point.a + point.c : point.b;
    if (!std::isfinite(at)) continue;
    x.push_back(at);
    y.push_back(point.far);
  }
  google::protobuf::Struct& scatter = PutStruct(*finding.mutable_witness(), "scatter");
  Put(scatter, "x_name", by_entropy ? "log pi + H" : "log mu");
  Put(scatter, "y_name", "log pi - log mu");
  Put(scatter, "unit", "nats");
  Put(scatter, "of", static_cast<double>(s.drawn.seen()));
  PutNumbers(scatter, "x", x);
  PutNumbers(scatter, "y", y);
  if (!fitted) return;
  Put(scatter, "slope", mark.fit.slope);
  Put(scatter, "intercept", mark.fit.intercept);
  Put(scatter, "standard_error", mark.fit.standard_error);
  Put(scatter, "r2", mark.fit.r2);
}

v1::Verdict DriftFinding(const DriftSite& site, int64_t step_first, const DriftCause& cause,
                         FindingBuilder found, const DriftAlarm& alarm, uint64_t sample_size) {
  found.Cause(cause.id, cause.confidence)
      .Fix(cause.fix)
      .FalseAlarm(alarm.kind, alarm.value)
      .Samples(sample_size);
  site.Place(found.verdict());
  DrawDrift(site.statistics, found.finding());
  found.verdict().mutable_site()->set_step_first(step_first);
  return found.Take();
}

std::string PossibleCauses(const DriftCause& cause) {
  if (cause.id == "missed-sync" || cause.words.empty()) return "";
  return absl::StrCat(" Cause: ", cause.remaining.empty() ? cause.words : cause.remaining, ".");
}

void AssumeDrift(const DriftSite& site, v1::Verdict& verdict) {
  const DriftStatistics& s = site.statistics;
  if (s.with_lag == 0 && s.judged > 0)
    verdict.add_assumptions(
        "no weight versions are recorded: all tokens are treated as sampled by the trainer's own "
        "version");
  if (std::string copies = CopiesAssumed(s); !copies.empty()) verdict.add_assumptions(copies);
  AssumeHalves(site, verdict);
}

std::string CopiesAssumed(const DriftStatistics& s) {
  if (s.copies == 0) return "";
  return absl::StrFormat(
      "%d sequences with the same tokens and log mu as another, under other ids, are copies; they "
      "are counted once",
      s.copies);
}

void AssumeHalves(const DriftSite& site, v1::Verdict& verdict) {
  if (site.unmatched > 0)
    verdict.add_assumptions(absl::StrFormat(
        "%d sequences that only one side recorded are similar to the others", site.unmatched));
}

void RestOn(const std::vector<std::string>& assumptions, v1::Verdict& verdict) {
  const bool finding = verdict.kind() == v1::Verdict::KIND_FINDING;
  for (const std::string& text : assumptions) {
    if (finding) verdict.mutable_finding()->add_assumptions(text);
    if (!finding) verdict.add_assumptions(text);
  }
  if (!finding) return;
  *verdict.mutable_finding()->mutable_details() = verdict.details();
  verdict.mutable_assumptions()->CopyFrom(verdict.finding().assumptions());
}

}  // namespace plumbline::analysis
