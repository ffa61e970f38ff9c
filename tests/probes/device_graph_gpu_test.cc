// Calls in CUDA graphs over the real library: captured once and replayed. The results of due steps
// equal those of the CPU references bit for bit. (device_graph_test.cc has the other tests, on the
// fake.) Needs a GPU; the program's main function is device_ring_gpu_test.cc's.
#include "tests/kernels/device/gpu.h"

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "tests/probes/gpu_cases.h"
#include "tests/probes/graph_owner.h"

namespace plumbline::probes {
namespace {

// A captured graph, instantiated.
class Graph {
 public:
  Graph(cudaStream_t on, const std::function<void()>& body) {
    EXPECT_EQ(cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal), cudaSuccess);
    body();
    EXPECT_EQ(cudaStreamEndCapture(on, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&made_, graph_, 0), cudaSuccess);
  }
  ~Graph() {
    cudaGraphExecDestroy(made_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void Replay(cudaStream_t on) { EXPECT_EQ(cudaGraphLaunch(made_, on), cudaSuccess); }
  size_t nodes() const {
    size_t n = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, &n), cudaSuccess);
    return n;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t made_ = nullptr;
};

class GpuGraph : public GpuTensors {
 protected:
  static void* Site(uintptr_t number) { return reinterpret_cast<void*>(0x10000 + 16 * number); }
  template <typename Call>
  void Capture(const Call& call, void* site) {
    EXPECT_EQ(ring_->Capture(call, stream_, stream_, site, &error_), DeviceOutcome::kTaken)
        << error_.text;
  }
  // Runs one due step; f is the trainer's part.
  void Step(int64_t step, const std::function<void()>& f) {
    ASSERT_EQ(ring_->BeginStep(step, &owner_, &error_), DeviceOutcome::kTaken) << error_.text;
    f();
    ASSERT_EQ(ring_->EndStep(&error_), DeviceOutcome::kTaken) << error_.text;
  }
  void Next(DeviceItem* item) {
    ASSERT_TRUE(WaitFront(ring_.get(), item));
    ASSERT_TRUE(item->measured) << item->why.text;
  }

  TestOwner owner_;
};

TEST_F(GpuGraph, FiguresElementsAndRowsAreTheHosts) {
  for (uint32_t seed = 0; seed < Cases(300); ++seed) {
    SCOPED_TRACE(seed);
    const TensorCase tensor(seed);
    const UpdateCase update(seed);
    const GpuCase router(seed, seed % 50 == 0 ? 20000 : 900);
    const MeasureOptions options = OptionsOf(seed, seed % 3 != 0);
    owner_.stop_conditions = {
        {Site(3 * seed), {true, options}},
        {Site(3 * seed + 1), {true, options}},
        {Site(3 * seed + 2), {true, OptionsOf(seed - seed % 5, seed % 3 != 0)}}};
    const TensorCall on_device = Copy(tensor);  // the trainer may not allocate while it captures
    const UpdateCall updated = Copy(update);
    Graph graph(stream_, [&] {
      Capture(on_device, Site(3 * seed));
      Capture(updated, Site(3 * seed + 1));
      Capture(router.device, Site(3 * seed + 2));
    });
    for (int64_t n = 0; n < 2; ++n) {  // in the second pass, the resources of the first one exist
      Step(2 * seed + n, [&] { graph.Replay(stream_); });
      DeviceItem item;
      Next(&item);
      ASSERT_NE(item.tensor, nullptr);
      ExpectHosts(tensor.host(), *item.tensor);
      ring_->Pop();
      Next(&item);
      ASSERT_NE(item.update, nullptr);
      ExpectHosts(update.host(), *item.update);
      ring_->Pop();
      Next(&item);
      ASSERT_NE(item.plan, nullptr);
      ExpectCounts(router.host, item);
      if (item.tag.sampled) ExpectRows(router.host, item.call);
      ring_->Pop();
    }
    if (HasFailure()) return;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);  // before the tensors are destroyed
    if (3 * (seed + 1) + 3 > kMaxCaptured) return;
  }
}

// A trainer's graph that only copies the step's values gives the same bits with and without probes.
// Of a thousand replays, those of due steps are measured, and no others.
TEST_F(GpuGraph, AThousandReplays) {
  constexpr size_t kValues = 100'000;
  std::vector<float> host(kValues);
  float *from = nullptr, *with = nullptr, *without = nullptr;
  for (float** p : {&from, &with, &without}) {
    ASSERT_EQ(cudaMalloc(p, kValues * sizeof(float)), cudaSuccess);
  }
  TensorCall call, on_device;
  call.values = TensorView::Dense(host.data(), DType::kF32, int64_t{kValues});
  on_device.values = TensorView::Dense(with, DType::kF32, int64_t{kValues});
  on_device.values.device = 0;
  const auto copy = [&](float* to) {
    return cudaMemcpyAsync(to, from, kValues * sizeof(float), cudaMemcpyDeviceToDevice, stream_);
  };
  Graph probed(stream_, [&] {
    EXPECT_EQ(copy(with), cudaSuccess);
    Capture(on_device, Site(0));
    Capture(on_device, Site(1));
  });
  Graph plain(stream_, [&] { EXPECT_EQ(copy(without), cudaSuccess); });
  EXPECT_EQ(plain.nodes() + 6, probed.nodes()) << "three launches a tensor";
  std::mt19937 random(3);
  std::vector<float> left(kValues), right(kValues);
  for (int64_t step = 0; step < Cases(1000); ++step) {
    for (int i = 0; i < 100; ++i) {
      host[random() % kValues] = static_cast<float>(random() % 1000) / 7 - 70;
    }
    ASSERT_EQ(cudaMemcpyAsync(from, host.data(), kValues * sizeof(float), cudaMemcpyHostToDevice,
                              stream_),
              cudaSuccess);
    const bool due = step < 8 || step % 4 == 0;
    const auto seed = static_cast<uint32_t>(step - step % 5);
    owner_.stop_conditions.clear();
    if (due) owner_.stop_conditions = {{Site(1), {true, OptionsOf(seed, step % 2 == 0)}}};
    const int replays = due ? static_cast<int>(step % 3) : 1;
    Step(step, [&] {
      for (int r = 0; r < replays; ++r) probed.Replay(stream_);
    });
    probed.Replay(stream_);  // between two steps
    plain.Replay(stream_);
    for (int r = 0; due && r < replays; ++r) {
      DeviceItem item;
      Next(&item);
      EXPECT_EQ(item.tag.step, step);
      EXPECT_EQ(item.tag.site, Site(1));
      EXPECT_EQ(item.tag.call, static_cast<uint32_t>(r));
      EXPECT_EQ(item.tag.sampled, r == 0 && step % 2 == 0);
      ASSERT_NE(item.tensor, nullptr);
      ExpectHosts(call, *item.tensor);
      ring_->Pop();
    }
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    DeviceItem none;
    ASSERT_FALSE(ring_->Front(&none));
    if (step % 50 != 0) continue;
    const size_t bytes = kValues * sizeof(float);
    ASSERT_EQ(cudaMemcpy(left.data(), with, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(right.data(), without, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(std::memcmp(left.data(), right.data(), bytes), 0);
    if (HasFailure()) break;
  }
  for (float* p : {from, with, without}) cudaFree(p);
}

// The sampled rows and columns of a product differ at each sampled step.
TEST_F(GpuGraph, ProductsAreGatheredAsTheHostDoes) {
  constexpr int64_t kM = 70, kN = 90, kK = 130;
  std::vector<float> values(kM * kK + kK * kN + kM * kN);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 1009);
  MatmulCall host;
  host.input.a = TensorView::Dense(values.data(), DType::kF32, kM, kK);
  host.input.b = TensorView::Dense(values.data() + kM * kK, DType::kF32, kK, kN);
  host.input.d = TensorView::Dense(values.data() + kM * kK + kK * kN, DType::kF32, kM, kN);
  host.library = "cublas";
  Complete(&host);
  std::vector<std::byte> block(values.size() * sizeof(float));
  std::memcpy(block.data(), values.data(), block.size());
  MatmulCall device = host;
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  for (TensorView* v : {&device.input.a, &device.input.b, &device.input.d}) {
    v->data = block.data() + (static_cast<const std::byte*>(v->data) - begin);
    *v = copies_.Copy(*v, block);
  }
  Graph graph(stream_, [&] { Capture(device, Site(0)); });
  for (uint32_t step = 0; step < Cases(60); ++step) {
    const MeasureOptions options = OptionsOf(5 * step, step % 3 != 2);
    owner_.stop_conditions = {{Site(0), {true, options}}};
    Step(step, [&] { graph.Replay(stream_); });
    DeviceItem item;
    Next(&item);
    ASSERT_NE(item.product, nullptr);
    const ProductPlan plan = options.sampled ? PlanSample(host, options) : ProductPlan{};
    ASSERT_EQ(item.product->fields.elements, plan.elements);
    if (options.sampled) {
      std::vector<std::byte> expected(plan.bytes);
      GatherProduct(plan, expected.data());
      EXPECT_EQ(std::memcmp(item.product->input.a.data, expected.data(), plan.bytes), 0);
    }
    ring_->Pop();
  }
}

// Two graphs that were captured on one stream run at the same time, each on a separate stream,
// between the step's begin and end.
TEST_F(GpuGraph, GraphsOnStreamsOfTheirOwn) {
  const GpuCase cases[] = {GpuCase(3, 20000), GpuCase(8, 20000)};
  const std::unique_ptr<Graph> graphs[] = {
      std::make_unique<Graph>(stream_, [&] { Capture(cases[0].device, Site(0)); }),
      std::make_unique<Graph>(stream_, [&] { Capture(cases[1].device, Site(1)); })};
  const MeasureOptions options = OptionsOf(1, true);
  owner_.stop_conditions = {{Site(0), {true, options}}, {Site(1), {true, options}}};
  cudaStream_t adjacent[2] = {};
  cudaEvent_t begun = nullptr, ended[2] = {};
  ASSERT_EQ(cudaEventCreate(&begun), cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&adjacent[i], cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&ended[i]), cudaSuccess);
  }
  for (int64_t step = 0; step < Cases(100); ++step) {
    Step(step, [&] {
      EXPECT_EQ(cudaEventRecord(begun, stream_), cudaSuccess);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(cudaStreamWaitEvent(adjacent[i], begun, 0), cudaSuccess);
        for (int r = 0; r < 3; ++r) graphs[i]->Replay(adjacent[i]);
        EXPECT_EQ(cudaEventRecord(ended[i], adjacent[i]), cudaSuccess);
        EXPECT_EQ(cudaStreamWaitEvent(stream_, ended[i], 0), cudaSuccess);
      }
    });
    for (const GpuCase& c : cases) {
      for (int r = 0; r < 3; ++r) {
        DeviceItem item;
        Next(&item);
        ASSERT_NE(item.plan, nullptr);
        ExpectCounts(c.host, item);
        ring_->Pop();
      }
    }
    if (HasFailure()) break;
  }
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  cudaEventDestroy(begun);
  for (int i = 0; i < 2; ++i) {
    cudaEventDestroy(ended[i]);
    cudaStreamDestroy(adjacent[i]);
  }
}

// A graph runs on a stream for which the step does not wait, and begins after the step. It is not
// measured.
TEST_F(GpuGraph, AReplayThatComesLateIsNotMeasured) {
  const TensorCase tensor(3);
  const TensorCall device = Copy(tensor);
  cudaStream_t adjacent = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&adjacent, cudaStreamNonBlocking), cudaSuccess);
  Graph graph(stream_, [&] { Capture(device, Site(0)); });
  owner_.stop_conditions = {{Site(0), {true, OptionsOf(3, true)}}};
  Blocker blocker(adjacent);
  Step(0, [&] { graph.Replay(adjacent); });
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  DeviceItem item;
  EXPECT_FALSE(ring_->Front(&item));
  blocker.Release();
  EXPECT_EQ(cudaStreamSynchronize(adjacent), cudaSuccess);
  EXPECT_FALSE(ring_->Front(&item));
  Step(1, [&] { graph.Replay(stream_); });
  Take();
  cudaStreamDestroy(adjacent);
}

// The graph outlives the run. Its probes read memory that still exists, and do nothing.
TEST_F(GpuGraph, AGraphOutlivesTheRing) {
  const TensorCase tensor(3);
  const TensorCall device = Copy(tensor);
  Graph graph(stream_, [&] { Capture(device, Site(0)); });
  owner_.stop_conditions = {{Site(0), {true, OptionsOf(3, true)}}};
  Step(0, [&] { graph.Replay(stream_); });
  Take();
  DeviceItem none;
  EXPECT_FALSE(ring_->Front(&none));  // otherwise the ring would free nothing
  DeviceError error{};
  ring_ = DeviceRing::Open(g_table, 0, {}, &error);
  ASSERT_NE(ring_, nullptr) << error.text;
  for (int i = 0; i < 10; ++i) graph.Replay(stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(GpuGraph, CallsOutsideOfACaptureAreRefused) {
  const TensorCase tensor(3);
  EXPECT_EQ(ring_->Capture(Copy(tensor), stream_, stream_, Site(0), &error_),
            DeviceOutcome::kRefused);
  EXPECT_FALSE(ring_->has_graphs());
}

}  // namespace
}  // namespace plumbline::probes
#endif
