#include "audit/session/series_collector.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace plumbline::audit {
namespace {

int64_t BucketOf(const CollectedSeries& series, int64_t step) { return step >> series.bucket_bits; }

int64_t FirstStepOf(const CollectedSeries& series, int64_t step) {
  return BucketOf(series, step) * (int64_t{1} << series.bucket_bits);
}

// Merges buckets. `later` holds newer steps, or the same ones.
void Join(const SeriesBucket& later, SeriesBucket* into) {
  if (later.finite > 0) {
    into->min = into->finite > 0 ? std::min(into->min, later.min) : later.min;
    into->max = into->finite > 0 ? std::max(into->max, later.max) : later.max;
    into->last = later.last;
    into->last_step = later.last_step;
  }
  into->finite += later.finite;
  into->non_finite += later.non_finite;
}

// Doubles the steps per bucket until there are few enough buckets: at most 63 times in a series'
// life.
void Widen(CollectedSeries* series) {
  while (series->buckets.size() > SeriesCollector::kMostBuckets) {
    ++series->bucket_bits;
    std::vector<SeriesBucket> joined;
    for (SeriesBucket& bucket : series->buckets) {
      bucket.step = FirstStepOf(*series, bucket.step);
      if (!joined.empty() && joined.back().step == bucket.step) {
        Join(bucket, &joined.back());
      } else {
        joined.push_back(bucket);
      }
    }
    series->buckets = std::move(joined);
  }
}

void AddValue(int64_t step, double value, SeriesBucket* bucket) {
  if (!std::isfinite(value)) {
    ++bucket->non_finite;
    return;
  }
  bucket->min = bucket->finite > 0 ? std::min(bucket->min, value) : value;
  bucket->max = bucket->finite > 0 ? std::max(bucket->max, value) : value;
  if (bucket->finite == 0 || step > bucket->last_step) {  // of one step, the first rank's value
    bucket->last = value;
    bucket->last_step = step;
  }
  ++bucket->finite;
}

void Put(int64_t step, double value, CollectedSeries* series) {
  const int64_t first = FirstStepOf(*series, step);
  std::vector<SeriesBucket>& buckets = series->buckets;
  if (!buckets.empty() && buckets.back().step == first)
    return AddValue(step, value, &buckets.back());
  auto place = buckets.end();
  if (!buckets.empty() && first <= buckets.back().step) {  // usually false, because only late
                                                           // values are not the newest
    place = std::lower_bound(buckets.begin(), buckets.end(), first,
                             [](const SeriesBucket& b, int64_t s) { return b.step < s; });
  }
  if (place == buckets.end() || place->step != first) {
    SeriesBucket fresh;
    fresh.step = first;
    place = buckets.insert(place, fresh);
  }
  AddValue(step, value, &*place);
  Widen(series);
}

// Returns false if the step's attempt was replaced by a later one.
bool Enter(const rules::StepSeries& step, CollectedSeries* series) {
  if (step.attempt < series->attempt) return false;
  if (step.attempt == series->attempt) return true;
  series->attempt = step.attempt;
  const int64_t first = FirstStepOf(*series, step.step);
  while (!series->buckets.empty() && series->buckets.back().step >= first)
    series->buckets.pop_back();
  return true;
}

std::string TextAt(const google::protobuf::Struct& fields, const char* key) {
  const auto field = fields.fields().find(key);
  return field == fields.fields().end() ? "" : field->second.string_value();
}

}  // namespace

bool ReadsAsLoss(std::string_view name) {
  constexpr std::string_view kWord = "loss";
  if (name.size() < kWord.size()) return false;
  const std::string_view end = name.substr(name.size() - kWord.size());
  const bool same = std::equal(end.begin(), end.end(), kWord.begin(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
  if (!same || name.size() == kWord.size()) return same;
  return std::isalnum(static_cast<unsigned char>(name[name.size() - kWord.size() - 1])) == 0;
}

int64_t OnsetOf(const v1::Finding& finding) {
  const auto step = finding.details().fields().find("step");
  if (step != finding.details().fields().end()) {
    const double value = step->second.number_value();
    const bool number = step->second.kind_case() == google::protobuf::Value::kNumberValue;
    if (number && value == std::floor(value) && std::fabs(value) < 9007199254740992.0)
      return static_cast<int64_t>(value);
  }
  return finding.site().step_first();
}

bool SeriesCollector::Keep(const rules::StepSeries& step, const v1::Site& site, size_t* index) {
  Id id = {std::string(step.run), static_cast<int>(step.role), site.layer(), site.op()};
  const auto known = ids_.find(id);
  if (known != ids_.end()) {
    *index = known->second;
    return true;
  }
  const size_t most = ReadsAsLoss(site.op()) ? kMostSeries : kMostSeries - kForLosses;
  if (series_.size() >= most) return false;
  *index = series_.size();
  CollectedSeries& fresh = series_.emplace_back();
  fresh.run = std::string(step.run);
  fresh.layer = site.layer();
  fresh.op = site.op();
  fresh.role = step.role;
  fresh.attempt = step.attempt;
  ids_.emplace(std::move(id), *index);
  return true;
}

// Looks up a list's places once. A list may be freed with its stream, so an equal pointer alone
// does not prove that it is the same list.
const SeriesCollector::List& SeriesCollector::ListOf(const rules::StepSeries& step) {
  // Usually it is the list of the preceding step.
  if (newest_.list != nullptr && newest_.columns == step.columns.get() &&
      !newest_.list->columns.expired() && newest_.role == step.role && newest_.run == step.run)
    return *newest_.list;
  newest_.list = &FindList(step);
  newest_.columns = step.columns.get();
  newest_.role = step.role;
  newest_.run = step.run;
  return *newest_.list;
}

const SeriesCollector::List& SeriesCollector::FindList(const rules::StepSeries& step) {
  auto key =
      std::make_tuple(std::string(step.run), static_cast<int>(step.role), step.columns.get());
  const auto known = lists_.find(key);
  if (known != lists_.end() && known->second.columns.lock() == step.columns) return known->second;
  List& list = known != lists_.end()        ? known->second
               : lists_.size() < kMostLists ? lists_[std::move(key)]
                                            : passing_;
  list.columns = step.columns;
  list.kept.clear();
  for (size_t column = 0; column < step.columns->sites.size(); ++column) {
    size_t index = 0;
    if (Keep(step, step.columns->sites[column], &index)) list.kept.emplace_back(column, index);
  }
  return list;
}

void SeriesCollector::Take(const rules::StepSeries& step) {
  if (step.columns == nullptr) return;
  const List& list = ListOf(step);
  left_out_ += (step.columns->sites.size() - list.kept.size()) * step.rows.size();
  for (const auto& [column, index] : list.kept) {
    CollectedSeries& series = series_[index];
    bool entered = false, superseded = false;
    for (const rules::SeriesRow& row : step.rows) {
      if (!row.present(column)) continue;
      if (!entered) superseded = !Enter(step, &series);
      entered = true;
      if (superseded) break;
      Put(step.step, row.values[column], &series);
    }
  }
}

const CollectedSeries* SeriesCollector::Named(const std::string& run, const std::string& layer,
                                              const std::string& op) const {
  for (const v1::Role role : {v1::ROLE_TRAINER, v1::ROLE_ROLLOUT, v1::ROLE_UNSPECIFIED}) {
    const auto id = ids_.find({run, static_cast<int>(role), layer, op});
    if (id != ids_.end() && !series_[id->second].buckets.empty()) return &series_[id->second];
  }
  return nullptr;
}

const CollectedSeries* SeriesCollector::Find(const v1::Finding& finding) const {
  const v1::FindingSite& site = finding.site();
  const std::string name = TextAt(finding.details(), "series");
  if (!name.empty()) {
    if (const auto* series = Named(site.run(), "", name)) return series;
    if (const auto* series = Named(site.run(), site.layer(), name)) return series;
    // "LAYER/OP": both parts may contain a slash, so try each position.
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      if (const auto* series = Named(site.run(), name.substr(0, slash), name.substr(slash + 1)))
        return series;
    }
  }
  return Named(site.run(), site.layer(), site.op());
}

}  // namespace plumbline::audit
