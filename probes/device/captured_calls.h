// The kinds of captured calls (graph_calls.h). Each owns its texts and stores the addresses of its
// tensors, which do not change in a graph.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "probes/device/graph_calls.h"

namespace plumbline::probes {

class CapturedRouting final : public CapturedCall {
 public:
  CapturedRouting(const RoutingCall& call, const RoutingPlan& plan);
  size_t Bytes(const MeasureOptions& options, bool elements) const override;
  void Put(const MeasureOptions& options, bool elements, std::byte* body,
           GraphWork* work) const override;
  void Show(const std::byte* body, DeviceItem* item) const override;

 private:
  bool Keeps(const MeasureOptions& options, bool elements) const;

  RoutingCall call_;
  RoutingPlan plan_;
  std::string randomness_, mode_, policy_;
};

class CapturedProduct final : public CapturedCall {
 public:
  explicit CapturedProduct(const MatmulCall& call);
  // Returns the largest number of threads of any step's sample.
  int64_t MostThreads() const;
  size_t Bytes(const MeasureOptions& options, bool elements) const override;
  void Put(const MeasureOptions& options, bool elements, std::byte* body,
           GraphWork* work) const override;
  void Show(const std::byte* body, DeviceItem* item) const override;

 private:
  ProductPlan PlanOf(const MeasureOptions& options, bool elements) const;

  MatmulCall call_;
  std::string input_format_, library_;
};

// A tensor or an update: the data from which its job is planned.
template <typename Job, typename Call>
class CapturedJob : public CapturedCall {
 public:
  explicit CapturedJob(const Call& call) : call_(call) {}
  // Called first. Returns the data that stay on the device: the shape, and the items followed by
  // zeros.
  absl::Status Figures(BatchShape* shape, std::vector<std::byte>* content);
  size_t Bytes(const MeasureOptions& options, bool elements) const override;
  void Put(const MeasureOptions& options, bool elements, std::byte* body,
           GraphWork* work) const override;

 protected:
  Call call_;

 private:
  Job Plan(const MeasureOptions& options, bool elements) const;  // of a sampled step

  Job plain_;  // of a replay that keeps no elements
};

class CapturedTensor final : public CapturedJob<TensorJob, TensorCall> {
 public:
  explicit CapturedTensor(const TensorCall& call);
  void Show(const std::byte* body, DeviceItem* item) const override;

 private:
  std::string role_, replicas_;
};

class CapturedUpdate final : public CapturedJob<UpdateJob, UpdateCall> {
 public:
  explicit CapturedUpdate(const UpdateCall& call);
  void Show(const std::byte* body, DeviceItem* item) const override;

 private:
  std::string optimizer_;
};

}  // namespace plumbline::probes
