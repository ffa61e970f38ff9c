// Collects series for the plots of a report, reduced to a few hundred buckets while steps close.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "rules/engine/series.h"

namespace plumbline::audit {

// The finite values of all ranks over the steps of one bucket, and the number of non-finite values.
struct SeriesBucket {
  int64_t step = 0;       // first step of the bucket, a multiple of the bucket's steps
  int64_t last_step = 0;  // newest step that had a value
  double min = 0, max = 0;
  double last = 0;  // of the newest step with a finite value, of the lowest rank
  uint32_t finite = 0, non_finite = 0;
};

struct CollectedSeries {
  std::string run, layer, op;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t attempt = 0;               // the newest attempt
  int bucket_bits = 0;                // a bucket has 2^bucket_bits steps
  std::vector<SeriesBucket> buckets;  // by step; only buckets with a value

  // Returns "LAYER/OP", or "OP" without a layer.
  std::string Name() const { return layer.empty() ? op : layer + "/" + op; }
};

// Work is linear in the values. Memory does not depend on the run's length: kMostSeries series of
// kMostBuckets buckets, at most about 50 MB. Series beyond that are counted and not kept; the last
// kForLosses places are for losses. Not thread-safe.
class SeriesCollector {
 public:
  static constexpr size_t kMostBuckets = 512;
  static constexpr size_t kMostSeries = 2048, kForLosses = 256;
  static constexpr size_t kMostLists = 8192;  // lists of columns whose places are remembered

  // Adds a step from Engine::SetOnSeries. A later attempt replaces the steps that it repeats.
  void Take(const rules::StepSeries& step);

  // Returns the series of a finding: details.series, otherwise that of its layer and op. If there
  // is none, or it was not kept, returns nullptr.
  const CollectedSeries* Find(const v1::Finding& finding) const;
  const std::vector<CollectedSeries>& series() const { return series_; }
  uint64_t left_out() const { return left_out_; }  // values of series that were not kept

 private:
  using Id = std::tuple<std::string, int, std::string, std::string>;  // run, role, layer, op
  struct List {
    std::weak_ptr<const rules::SeriesColumns> columns;
    std::vector<std::pair<size_t, size_t>> kept;  // column, index into series_
  };

  // The buckets of the newest step's values. Not copied with the collector.
  struct Newest {
    Newest() = default;
    Newest(const Newest& /*other*/) {}
    Newest& operator=(const Newest& /*other*/) {
      list = nullptr;
      return *this;
    }
    ~Newest() = default;
    const List* list = nullptr;
    const rules::SeriesColumns* columns = nullptr;
    v1::Role role = v1::ROLE_UNSPECIFIED;
    std::string run;
  };

  const List& ListOf(const rules::StepSeries& step);
  const List& FindList(const rules::StepSeries& step);
  bool Keep(const rules::StepSeries& step, const v1::Site& site, size_t* index);
  const CollectedSeries* Named(const std::string& run, const std::string& layer,
                               const std::string& op) const;

  std::vector<CollectedSeries> series_;
  std::map<Id, size_t> ids_;
  std::map<std::tuple<std::string, int, const rules::SeriesColumns*>, List> lists_;
  List passing_;  // used for lists beyond kMostLists
  Newest newest_;
  uint64_t left_out_ = 0;
};

// Returns true if the name ends in the word "loss": "loss", "train/loss", "val_loss".
bool ReadsAsLoss(std::string_view name);

// Returns the step at which a finding about a series begins: details.step, otherwise its first
// step.
int64_t OnsetOf(const v1::Finding& finding);

}  // namespace plumbline::audit
