// CUDA tensors through the agent, over the fake device: the record holds the same bytes as for host
// tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/agent/core/on_device.h"
#include "tests/kernels/routing/case.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

// A random call as a C caller passes it, on the host or on a device.
class AnyCall {
 public:
  explicit AnyCall(uint32_t seed)
      : case_(CaseMaker(seed, {.aligned = true, .max_tokens = 400}).Make()) {
    const RoutingInput& in = case_.in;
    routing_.top_k = static_cast<uint32_t>(in.top_k);
    routing_.scores_are_logits = in.scores_are_logits;
    routing_.score_function = static_cast<int32_t>(in.score_function);
    routing_.group_score = static_cast<int32_t>(in.group_score);
    routing_.groups = static_cast<uint32_t>(in.groups);
    routing_.top_groups = static_cast<uint32_t>(in.top_groups);
    routing_.capacity_kind = PLUMBLINE_CAPACITY_DECLARED;
    routing_.capacity = seed;
    routing_.mode = "train";
    routing_.scores = Tensor(0, in.scores);
    routing_.expert_bias = Tensor(1, in.expert_bias);
    routing_.topk_indices = Tensor(2, in.topk_indices);
    routing_.keep_mask = Tensor(3, in.keep_mask);
    routing_.routing_map = Tensor(4, in.routing_map);
    routing_.probs = Tensor(5, in.probs);
    routing_.sequence_id = Tensor(6, in.sequence_id);
    routing_.position = Tensor(7, in.position);
    routing_.padding_mask = Tensor(8, in.padding_mask);
    routing_.pool_id = Tensor(9, in.pool_id);
  }
  const plumbline_routing_t& On(DLDevice device, void* stream = nullptr) {
    for (DLTensor& t : tensors_) t.device = device;
    routing_.cuda_stream = stream;
    return routing_;
  }

 private:
  static DLDataType TypeOf(DType t) {
    switch (t) {
      case DType::kF64:
        return {PLUMBLINE_DL_FLOAT, 64, 1};
      case DType::kF32:
        return {PLUMBLINE_DL_FLOAT, 32, 1};
      case DType::kF16:
        return {PLUMBLINE_DL_FLOAT, 16, 1};
      case DType::kBF16:
        return {PLUMBLINE_DL_BFLOAT, 16, 1};
      case DType::kBool:
        return {PLUMBLINE_DL_BOOL, 8, 1};
      default:
        break;
    }
    const bool is_unsigned = t >= DType::kU64;
    return {static_cast<uint8_t>(is_unsigned ? PLUMBLINE_DL_UINT : PLUMBLINE_DL_INT),
            static_cast<uint8_t>(8 * DTypeSize(t)), 1};
  }
  const DLTensor* Tensor(size_t i, const TensorView& v) {
    if (!v.present()) return nullptr;
    DLTensor& t = tensors_[i];
    t.data = const_cast<void*>(v.data);
    t.ndim = v.rank;
    t.dtype = TypeOf(v.dtype);
    for (size_t a = 0; a < 2; ++a) {
      shapes_[i][a] = v.shape[a];
      strides_[i][a] = v.stride[a];
    }
    t.shape = shapes_[i];
    t.strides = strides_[i];
    return &t;
  }

  RoutingCase case_;
  DLTensor tensors_[10]{};
  int64_t shapes_[10][2]{}, strides_[10][2]{};
  plumbline_routing_t routing_ = PLUMBLINE_ROUTING_INIT;
};

using ItemKey = std::tuple<std::string, int64_t, uint32_t>;

// Every routing item of a run over `calls`, as bytes.
std::map<ItemKey, std::string> Recorded(std::vector<std::unique_ptr<AnyCall>>& calls,
                                        DLDevice device) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 30000;  // so that some steps are not sampled
  options.sample_max_bytes = 40000;
  TestRun run(options);
  for (int64_t step = 0; step < 12; ++step) {
    run.run().StepBegin(step);
    for (size_t i = 0; i < calls.size(); ++i) {
      plumbline_error_t error{};
      const std::string layer = "layers." + std::to_string(i % 7);
      const plumbline_routing_t& routing = calls[i]->On(device, Stream(i % 3));
      const plumbline_status_t status =
          run.run().ObserveRouting(run.RoutingSite(layer), step, routing, &error);
      EXPECT_EQ(status, PLUMBLINE_OK) << error.text;
    }
    run.run().StepEnd(step);
    plumbline_error_t error{};
    EXPECT_EQ(run.run().Flush(60000, &error), PLUMBLINE_OK) << error.text;
  }
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  std::map<ItemKey, std::string> items;
  const auto batches = Batches(dir);
  EXPECT_EQ(AccountOf(batches).lost, 0u);
  for (const v1::Batch& b : batches) {
    for (const v1::Evidence& e : b.evidence()) {
      items[{e.site().layer(), e.step(), e.call()}] = e.SerializeAsString();
    }
  }
  return items;
}

TEST_F(Device, EvidenceIsTheHostPathsBitForBit) {
  std::vector<std::unique_ptr<AnyCall>> calls;
  for (uint32_t seed = 0; seed < 40; ++seed) calls.push_back(std::make_unique<AnyCall>(seed));
  const auto host = Recorded(calls, {kDLCPU, 0});
  EXPECT_EQ(g_fake->calls("measure"), 0u);
  const auto device = Recorded(calls, {kDLCUDA, 2});
  EXPECT_EQ(g_fake->calls("measure"), 40u * 12);
  ASSERT_EQ(host.size(), 40u * 12);
  ASSERT_EQ(device.size(), host.size());
  uint64_t sampled = 0;
  for (const auto& [key, bytes] : host) {
    ASSERT_EQ(device.at(key), bytes) << std::get<0>(key) << " step " << std::get<1>(key);
    v1::Evidence e;
    ASSERT_TRUE(e.ParseFromString(bytes));
    sampled += e.routing().has_sample();
  }
  EXPECT_GT(sampled, 40u);
  EXPECT_LT(sampled, host.size());
}

// Products of a run, on the host or on the device, as bytes.
std::vector<std::string> RecordedProducts(DLDevice device, bool hold) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 4000;  // so that some steps are not sampled
  TestRun run(options);
  std::vector<float> a(40 * 70), b(70 * 33), d(40 * 33), c(33);
  for (auto* values : {&a, &b, &d, &c})
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(i * 7919 % 1009);
  DLTensor tensors[4] = {};
  int64_t shapes[4][2] = {{40, 70}, {70, 33}, {40, 33}, {33, 0}};
  float* const data[4] = {a.data(), b.data(), d.data(), c.data()};
  for (int i = 0; i < 4; ++i) {
    tensors[i].data = data[i];
    tensors[i].device = device;
    tensors[i].dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
    tensors[i].ndim = i == 3 ? 1 : 2;
    tensors[i].shape = shapes[i];
  }
  plumbline_matmul_t call = PLUMBLINE_MATMUL_INIT;
  call.a = &tensors[0];
  call.b = &tensors[1];
  call.d = &tensors[2];
  call.c = &tensors[3];
  call.library = "by hand";
  plumbline_agent_site_t site{
      sizeof(site), PLUMBLINE_KIND_MATMUL, "up", "matmul", 0, nullptr, nullptr, 0};
  uint64_t due = 0;
  site.next_due = &due;
  plumbline_error_t error{};
  void* made = nullptr;
  EXPECT_EQ(run.run().DeclareSite(site, &made, &error), PLUMBLINE_OK) << error.text;
  g_fake->hold(hold);
  for (int64_t step = 0; step < 30; ++step) {
    run.run().StepBegin(step);
    EXPECT_EQ(run.run().ObserveMatmul(static_cast<Site*>(made), step, call, &error), PLUMBLINE_OK)
        << error.text;
    run.run().StepEnd(step);
    a[static_cast<size_t>(step)] += 1;  // read when the stream reaches it, so only if the stream is
                                        // not held
    if (hold) a[static_cast<size_t>(step)] -= 1;
  }
  g_fake->hold(false);
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  std::vector<std::string> items;
  for (const v1::Batch& batch : Batches(dir))
    for (const v1::Evidence& e : batch.evidence()) items.push_back(e.SerializeAsString());
  return items;
}

TEST_F(Device, ProductsAreGatheredThereBitForBit) {
  for (const bool hold : {false, true}) {
    const auto host = RecordedProducts({kDLCPU, 0}, hold);
    const uint64_t before = g_fake->calls("gather_product");
    const auto device = RecordedProducts({kDLCUDA, 0}, hold);
    const uint64_t gathered = g_fake->calls("gather_product") - before;
    EXPECT_GT(gathered, 0u);
    EXPECT_LT(gathered, 30u) << "steps without a sample need no device";
    ASSERT_EQ(host.size(), 30u);
    auto sorted_host = host, sorted_device = device;
    std::sort(sorted_host.begin(), sorted_host.end());
    std::sort(sorted_device.begin(), sorted_device.end());
    EXPECT_EQ(sorted_device, sorted_host);
  }
}

}  // namespace
}  // namespace plumbline::agent
