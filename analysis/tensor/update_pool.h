// Pools updates of tensors that have too few elements to be judged alone, over tensors and steps,
// per rank, optimizer and dtype. In a short run, a bias of 64 elements is sampled a few times only.
// All biases and norms together have thousands of elements.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Not thread-safe. Use one per rule object.
class UpdatePool {
 public:
  struct Pooled {
    v1::Update update;  // the common configuration and the sums of the summaries; no sample
    UpdateCase sample;
    std::vector<std::string> layers;  // names of all tensors in the pool
    std::vector<uint32_t> owners;     // per element of the sample: its index in `layers`
    int64_t step_first = 0, step_last = 0;
    bool fresh = false;   // something was added since the last judgement
    bool judged = false;  // this pool, or an earlier one of its key, had a verdict
    bool marked = false;  // set by the rule; never reset
    void Persist(Archive& a) {
      a(update, sample, layers, owners, step_first, step_last, fresh, judged, marked);
    }

    // Returns a name such as "blocks.0.ln1.bias[17]".
    std::string ElementName(size_t i) const;
    // Sets the place of a verdict, and lists the tensors.
    void Fill(uint32_t rank, v1::Verdict* verdict) const;
  };

  // If nothing was sampled, `sample` is null. Returns the pool that the update went to. If there is
  // no capacity left, returns null.
  Pooled* Add(const SiteStep& step, const Item& item, const UpdateCase* sample);

  // Call after the last site of a step. If `judge` returns a verdict for a pool, reports it and
  // empties the pool.
  void JudgeEach(const StepEnd& step, VerdictSink& out,
                 const std::function<std::optional<v1::Verdict>(const Pooled&)>& judge);

  // At the end, reports `why` for every tensor without a verdict.
  void ReportLeft(const std::string& why, VerdictSink& out) const;

  void Persist(Archive& a) {
    a.Version(1);
    a(pools_);
  }

 private:
  // attempt, role, rank, dtype, moments' dtype, optimizer, beta2, eps
  using Key =
      std::tuple<uint32_t, v1::Role, uint32_t, v1::DType, v1::DType, std::string, double, double>;
  std::map<Key, Pooled> pools_;
};

}  // namespace plumbline::analysis
