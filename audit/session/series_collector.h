// What the plots of a report show: series thinned out to a few hundred buckets while steps close.
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

// The values of `steps` steps, of all ranks, that were finite; and how many were not.
struct SeriesBucket {
  int64_t step = 0;       // first of the bucket, a multiple of the series' bucket_steps
  int64_t last_step = 0;  // newest that had a value
  double min = 0, max = 0;
  double last = 0;  // of the newest step with a finite value, the lowest rank's
  uint32_t finite = 0, non_finite = 0;
};

struct CollectedSeries {
  std::string run, layer, op;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t attempt = 0;               // the newest
  int bucket_bits = 0;                // a bucket is 2^bucket_bits steps
  std::vector<SeriesBucket> buckets;  // by step, those that have a value

  // "LAYER/OP", or "OP" without a layer.
  std::string Name() const { return layer.empty() ? op : layer + "/" + op; }
};

// Work is linear in the values, memory bounded: kMostSeries series of kMostBuckets buckets, some 50
// MB at most, whatever the run's length. Series beyond that are counted and not kept; the last
// places are for losses. Not thread-safe.
class SeriesCollector {
 public:
  static constexpr size_t kMostBuckets = 512;
  static constexpr size_t kMostSeries = 2048, kForLosses = 256;
  static constexpr size_t kMostLists = 8192;  // of columns, whose places are remembered

  // As the engine shows it (Engine::SetOnSeries). A later attempt supersedes the steps that it
  // repeats.
  void Take(const rules::StepSeries& step);

  // The series that a finding speaks of: details.series, otherwise that of its layer and op.
  // nullptr: there is none, or it was not kept.
  const CollectedSeries* Find(const v1::Finding& finding) const;
  const std::vector<CollectedSeries>& series() const { return series_; }
  uint64_t left_out() const { return left_out_; }  // values of series that were not kept

 private:
  using Id = std::tuple<std::string, int, std::string, std::string>;  // run, role, layer, op
  struct List {
    std::weak_ptr<const rules::SeriesColumns> columns;
    std::vector<std::pair<size_t, size_t>> kept;  // column, index into series_
  };

  // Where the newest step's values went. A copy of a collector begins without one.
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
  List passing_;  // of a list beyond kMostLists
  Newest newest_;
  uint64_t left_out_ = 0;
};

// Does the name end in the word "loss"? "loss", "train/loss", "val_loss".
bool ReadsAsLoss(std::string_view name);

// The step at which a finding about a series begins: details.step, otherwise its first.
int64_t OnsetOf(const v1::Finding& finding);

}  // namespace plumbline::audit
