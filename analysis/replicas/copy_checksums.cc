#include "analysis/replicas/copy_checksums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/replicas/replica_copies.h"

namespace plumbline::analysis {
namespace {

constexpr char kName[] = "weights_checksum";
constexpr size_t kMostSeries = 1024;  // process groups per run

// NaN means that a rank has no checksum, so it does not differ.
std::map<double, std::vector<uint32_t>> ByValue(const SiteStep& step) {
  std::map<double, std::vector<uint32_t>> ranks;
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    const double value = item.evidence->scalar().value();
    if (std::isfinite(value)) ranks[value].push_back(item.source->rank());
  }
  return ranks;
}

}  // namespace

bool CopyChecksums::Is(const v1::Site& site) {
  return site.layer().empty() &&
         (site.op() == kName || site.op().rfind(absl::StrCat(kName, "."), 0) == 0);
}

std::optional<v1::Verdict> CopyChecksums::Judge(const SiteStep& step) {
  const auto by_value = ByValue(step);
  size_t ranks = 0, most = 0;
  double usual = 0;
  for (const auto& [value, of] : by_value) {
    ranks += of.size();
    if (of.size() > most) usual = value;
    most = std::max(most, of.size());
  }
  if (ranks < 2) return std::nullopt;
  const Key key{step.attempt, step.role, step.site.op()};
  if (series_.size() >= kMostSeries && !series_.contains(key)) return std::nullopt;
  Series& series = series_[key];
  if (by_value.size() == 1) {
    series = {.agreed = step.step, .agreements = series.agreements + 1};
    // One pass per step would be too much output.
    if (!std::has_single_bit(series.agreements)) return std::nullopt;
    return Pass("the copies on all ranks have the same checksum");
  }
  // Without a strict majority all ranks are named, because none is known to be wrong.
  const bool majority = 2 * most > ranks;
  std::set<uint32_t> odd;
  for (const auto& [value, of] : by_value) {
    if (!majority || value != usual) odd.insert(of.begin(), of.end());
  }
  if (!series.parted) series.parted = step.step;
  if (std::includes(series.odd.begin(), series.odd.end(), odd.begin(), odd.end()))
    return std::nullopt;  // already reported
  // If a further rank joins them, this is a new finding, and the rank may differ in another tensor.
  series.odd = std::move(odd);
  series.ranks = ranks;
  series.majority = majority ? most : 0;
  series.explained = false;
  v1::Verdict verdict =
      Found(step.site.op(), series,
            " The next observation of the weights will show which tensor differs.");
  verdict.mutable_finding()->mutable_cause()->set_id("unknown");
  return verdict;
}

v1::Verdict CopyChecksums::Found(const std::string& op, const Series& series,
                                 const std::string& more) {
  const std::string names = RankList(series.odd);
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found
      .Title(series.majority > 0 ? "copies of the weights differ from those of the other ranks"
                                 : "the ranks' copies of the weights differ")
      .Explain(absl::StrCat(
          absl::StrFormat(
              "After step %d the checksum of all replicated weights is not the same on %s",
              *series.parted,
              series.majority > 0 ? absl::StrFormat("%s as on %d others of %d", names,
                                                    series.majority, series.ranks)
                                  : absl::StrFormat("%s, and no majority has the same one", names)),
          series.agreed ? absl::StrFormat("; after step %d it was the same.", *series.agreed)
                        : "; it was never the same.",
          more))
      .Measured("ranks that differ", static_cast<double>(series.odd.size()), "ranks")
      .Threshold(0, "copies are the same bits")
      .Fix(
          series.agreed
              ? "Reload that rank's weights from another replica. If one element differs, test its "
                "memory (dcgmi diag -r 3, ECC counters). If all differ, find what is not "
                "synchronised: DDP no_sync, parameters added after wrapping, seeds."
              : "Find the all-reduce that is missing: DDP no_sync on the wrong micro-batch, "
                "parameters added after wrapping; or weights that begin differently (seeds). If "
                "only one element differs, test that rank's memory (dcgmi diag -r 3).")
      .At("", op, *series.parted, *series.parted, series.odd);
  google::protobuf::Struct& witness = *found.finding().mutable_witness();
  Put(witness, "first step that differs", static_cast<double>(*series.parted));
  if (series.agreed) Put(witness, "last step that agrees", static_cast<double>(*series.agreed));
  return found.Take();
}

std::vector<v1::Verdict> CopyChecksums::Explained(const SiteStep& step,
                                                  const std::set<uint32_t>& odd,
                                                  const std::string& tensor,
                                                  const v1::Cause& cause) {
  std::vector<v1::Verdict> out;
  for (auto& [key, series] : series_) {
    if (std::get<0>(key) != step.attempt || std::get<1>(key) != step.role) continue;
    if (!series.parted || series.explained || series.odd != odd) continue;
    series.explained = true;
    v1::Verdict verdict =
        Found(std::get<2>(key), series,
              absl::StrFormat(" In step %d the tensor %s differs.", step.step, tensor));
    *verdict.mutable_finding()->mutable_cause() = cause;
    out.push_back(std::move(verdict));
  }
  return out;
}

}  // namespace plumbline::analysis
