// Updates of tensors that have too few elements to be judged alone, put together over tensors and
// steps: those of one rank, optimizer and dtype. In a short run a bias of 64 elements is looked at
// a few times; all biases and norms together are thousands of elements.
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

namespace plumbline::rules {

// Not thread-safe; one for each rule object.
class UpdatePool {
 public:
  struct Pooled {
    v1::Update update;  // the configuration of all; summaries added up; no sample
    UpdateCase sample;
    std::vector<std::string> layers;  // of all tensors in it, by name
    std::vector<uint32_t> owners;     // of each element of the sample: its place in `layers`
    int64_t step_first = 0, step_last = 0;
    bool fresh = false;   // something came since it was last looked at
    bool judged = false;  // a verdict was made of it, or of one before it
    bool marked = false;  // the rule's own, for ever
    void Persist(Archive& a) {
      a(update, sample, layers, owners, step_first, step_last, fresh, judged, marked);
    }

    // "blocks.0.ln1.bias[17]"
    std::string ElementName(size_t i) const;
    // Of a verdict of it: its place, and which tensors these are.
    void Fill(uint32_t rank, v1::Verdict* verdict) const;
  };

  // `sample` null: nothing was sampled. Returns where it went; null: there is no room.
  Pooled* Add(const SiteStep& step, const Item& item, const UpdateCase* sample);

  // After the last site of a step: what `judge` gives a verdict of is put out and begun anew.
  void JudgeEach(const StepEnd& step, VerdictSink& out,
                 const std::function<std::optional<v1::Verdict>(const Pooled&)>& judge);

  // At the end: `why` of every tensor of which no verdict was made.
  void TellLeft(const std::string& why, VerdictSink& out) const;

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

}  // namespace plumbline::rules
