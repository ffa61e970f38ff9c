// The evidence of one closed step of one side, by keys that do not depend on the order of arrival.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "audit/certify/side.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::audit {

// (role, rank, name of the site)
using CertifiedSite = std::tuple<int, uint32_t, std::string>;

struct HeldStep {
  std::map<std::string, std::vector<v1::LogprobsSequence>> sequences;  // by id
  // Choices of rollout records: (role, layer, sequence, position) -> expert ids.
  std::map<std::tuple<int, std::string, int64_t, int64_t>, std::vector<int64_t>> routes;
  std::map<CertifiedSite, double> series;                               // the last value of a step
  std::map<std::pair<CertifiedSite, uint32_t>, v1::Evidence> evidence;  // by site and call
  uint64_t times = 0;                                                   // spans and timelines
  uint64_t repeated = 0;  // evidence and routes with a key that the step has already
  uint64_t bytes = 0;     // approximate
  bool exact_nan = true;
};

// The steps of one side that are not compared yet. Not thread-safe.
class HeldSteps {
 public:
  // Takes a batch. Evidence of steps up to `closed` is counted as late.
  void Take(const v1::Batch& batch, bool exact_nan, const CertifiedStep& closed);
  // Removes the step. Returns an empty one if it is not there.
  HeldStep Release(const CertifiedStep& step);
  const std::map<CertifiedStep, HeldStep>& steps() const { return steps_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t late() const { return late_; }
  uint64_t undeclared() const { return undeclared_; }  // values of series without a declared set

 private:
  HeldStep* At(const v1::Source& source, int64_t step, const CertifiedStep& closed);
  void Add(const v1::Source& source, const v1::Evidence& item, const CertifiedStep& closed);
  void AddRows(const v1::Batch& batch, const v1::SeriesRows& rows, const CertifiedStep& closed);
  void Grow(HeldStep* step, uint64_t bytes);

  std::map<CertifiedStep, HeldStep> steps_;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::string>> sets_;
  uint64_t bytes_ = 0, late_ = 0, undeclared_ = 0;
  bool exact_nan_ = false;
};

}  // namespace plumbline::audit
