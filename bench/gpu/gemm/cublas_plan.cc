#include "bench/gpu/gemm/cublas_plan.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumbline::bench {
namespace {

using Candidate = cublasLtMatmulHeuristicResult_t;

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t TypeOf(Compute compute) {
  switch (compute) {
    case Compute::k32F:
      return CUBLAS_COMPUTE_32F;
    case Compute::k32FPedantic:
      return CUBLAS_COMPUTE_32F_PEDANTIC;
    case Compute::k32FFastTF32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Compute::k16F:
      return CUBLAS_COMPUTE_16F;
    case Compute::k64F:
      return CUBLAS_COMPUTE_64F;
  }
  return CUBLAS_COMPUTE_32F;
}

cudaDataType_t ScaleTypeOf(Compute compute) {
  if (compute == Compute::k64F) return CUDA_R_64F;
  return compute == Compute::k16F ? CUDA_R_16F : CUDA_R_32F;
}

void SetOne(Compute compute, std::byte* one) {
  const double d = 1;
  const float f = 1;
  const uint16_t h = 0x3c00;
  if (compute == Compute::k64F) {
    std::memcpy(one, &d, sizeof(d));
  } else if (compute == Compute::k16F) {
    std::memcpy(one, &h, sizeof(h));
  } else {
    std::memcpy(one, &f, sizeof(f));
  }
}

// Makes a plan in steps. The first error ends them.
class Planner {
 public:
  Planner(const CublasLt& lt, cublasLtHandle_t handle, const Product& product,
          const CublasLimits& limits)
      : lt_(lt),
        handle_(handle),
        product_(product),
        limits_(limits),
        input_(TypeOf(product.input)),
        output_(TypeOf(product.output)),
        compute_(TypeOf(product.compute)),
        scale_(ScaleTypeOf(product.compute)) {}

  absl::StatusOr<CublasPlan> Run() {
    // The algorithm is chosen for one shape, and checked for the other.
    auto chosen_for = Described(product_.algorithm);
    if (!chosen_for.ok()) return chosen_for.status();
    auto plan = Described(product_.shape);
    if (!plan.ok()) return plan.status();
    const auto candidates = Heuristics(*chosen_for);
    if (!candidates.ok()) return candidates.status();
    const absl::Status chosen =
        product_.split_k > 0 ? Split(*candidates, &*plan) : First(*candidates, &*plan);
    if (!chosen.ok()) return chosen;
    return plan;
  }

 private:
  absl::StatusOr<CublasHandle<cublasLtMatrixLayout_t>> Layout(cudaDataType_t type, int rows,
                                                              int columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    const cublasStatus_t status = lt_.MatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                                         static_cast<uint64_t>(columns), rows);
    if (status != CUBLAS_STATUS_SUCCESS) return lt_.StatusOf("cublasLtMatrixLayoutCreate", status);
    return CublasHandle<cublasLtMatrixLayout_t>(layout, lt_.MatrixLayoutDestroy);
  }

  absl::StatusOr<CublasHandle<cublasLtMatmulDesc_t>> Operation() {
    cublasLtMatmulDesc_t made = nullptr;
    cublasStatus_t status = lt_.MatmulDescCreate(&made, compute_, scale_);
    if (status != CUBLAS_STATUS_SUCCESS) return lt_.StatusOf("cublasLtMatmulDescCreate", status);
    CublasHandle<cublasLtMatmulDesc_t> operation(made, lt_.MatmulDescDestroy);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    status = lt_.MatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                        sizeof(transposed));
    if (status == CUBLAS_STATUS_SUCCESS && product_.fast_accumulation) {
      const int8_t fast = 1;
      status =
          lt_.MatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast));
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
      return lt_.StatusOf("cublasLtMatmulDescSetAttribute", status);
    }
    return operation;
  }

  absl::StatusOr<CublasPlan> Described(const Shape& shape) {
    auto operation = Operation();
    if (!operation.ok()) return operation.status();
    auto a = Layout(input_, shape.inner, shape.rows);
    auto b = Layout(input_, shape.inner, shape.columns);
    auto d = Layout(output_, shape.rows, shape.columns);
    for (const auto* layout : {&a, &b, &d}) {
      if (!layout->ok()) return layout->status();
    }
    CublasPlan plan{
        *std::move(operation), *std::move(a), *std::move(b), *std::move(d), {}, 0, 0, {}, {}};
    SetOne(product_.compute, plan.one);
    return plan;
  }

  absl::StatusOr<CublasHandle<cublasLtMatmulPreference_t>> Preference() {
    cublasLtMatmulPreference_t made = nullptr;
    cublasStatus_t status = lt_.MatmulPreferenceCreate(&made);
    if (status != CUBLAS_STATUS_SUCCESS) {
      return lt_.StatusOf("cublasLtMatmulPreferenceCreate", status);
    }
    CublasHandle<cublasLtMatmulPreference_t> preference(made, lt_.MatmulPreferenceDestroy);
    const uint64_t bytes = limits_.workspace_bytes;
    status = lt_.MatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &bytes, sizeof(bytes));
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt_.MatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                &limits_.a_alignment, sizeof(limits_.a_alignment));
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
      return lt_.StatusOf("cublasLtMatmulPreferenceSetAttribute", status);
    }
    return preference;
  }

  absl::StatusOr<std::vector<Candidate>> Heuristics(const CublasPlan& plan) {
    const auto preference = Preference();
    if (!preference.ok()) return preference.status();
    constexpr int kMost = 64;
    std::vector<Candidate> candidates(product_.split_k > 0 ? kMost : 1);
    int found = 0;
    const cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(
        handle_, plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
        preference->get(), static_cast<int>(candidates.size()), candidates.data(), &found);
    // An algorithm that the heuristics do not name may accept a split.
    if (status != CUBLAS_STATUS_SUCCESS && product_.split_k == 0) {
      return lt_.StatusOf("cublasLtMatmulAlgoGetHeuristic", status);
    }
    candidates.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
    return candidates;
  }

  cublasStatus_t Check(const cublasLtMatmulAlgo_t& algorithm, CublasPlan* plan) {
    Candidate result = {};
    const cublasStatus_t status =
        lt_.MatmulAlgoCheck(handle_, plan->operation.get(), plan->a.get(), plan->b.get(),
                            plan->d.get(), plan->d.get(), &algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (result.workspaceSize > limits_.workspace_bytes) return CUBLAS_STATUS_NOT_SUPPORTED;
    plan->algorithm = algorithm;
    plan->workspace_bytes = result.workspaceSize;
    plan->waves = static_cast<double>(result.wavesCount);
    return CUBLAS_STATUS_SUCCESS;
  }

  absl::Status First(const std::vector<Candidate>& candidates, CublasPlan* plan) {
    if (candidates.empty() || candidates[0].state != CUBLAS_STATUS_SUCCESS) {
      return absl::UnimplementedError("cublasLtMatmulAlgoGetHeuristic: no algorithm");
    }
    return lt_.StatusOf("cublasLtMatmulAlgoCheck", Check(candidates[0].algo, plan));
  }

  bool TakesSplit(cublasLtMatmulAlgo_t algorithm, CublasPlan* plan) {
    int32_t splits = 0;
    uint32_t schemes = 0;
    size_t written = 0;
    lt_.MatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT, &splits,
                                  sizeof(splits), &written);
    lt_.MatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK, &schemes,
                                  sizeof(schemes), &written);
    const auto scheme = static_cast<uint32_t>(product_.reduction);
    if (splits == 0 || (schemes & scheme) != scheme) return false;
    const int32_t parts = product_.split_k;
    return lt_.MatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                            sizeof(parts)) == CUBLAS_STATUS_SUCCESS &&
           lt_.MatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                            &scheme, sizeof(scheme)) == CUBLAS_STATUS_SUCCESS &&
           Check(algorithm, plan) == CUBLAS_STATUS_SUCCESS;
  }

  absl::Status Split(const std::vector<Candidate>& candidates, CublasPlan* plan) {
    for (const Candidate& candidate : candidates) {
      if (candidate.state == CUBLAS_STATUS_SUCCESS && TakesSplit(candidate.algo, plan)) {
        return absl::OkStatus();
      }
    }
    for (const int id : Ids()) {
      if (SplitOfId(id, plan)) return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat(
        "cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_SUPPORTED for every algorithm with ",
        product_.split_k, " parts reduced by ", ReductionName(product_.reduction)));
  }

  std::vector<int> Ids() {
    std::vector<int> ids(200);
    int found = 0;
    if (lt_.MatmulAlgoGetIds(handle_, compute_, scale_, input_, input_, output_, output_,
                             static_cast<int>(ids.size()), ids.data(),
                             &found) != CUBLAS_STATUS_SUCCESS) {
      found = 0;
    }
    ids.resize(static_cast<size_t>(found));
    return ids;
  }

  // Returns the algorithm's ids of tiles or stages; if it lists none, the id "undefined".
  std::vector<uint32_t> Capabilities(const cublasLtMatmulAlgo_t& algorithm,
                                     cublasLtMatmulAlgoCapAttributes_t which) {
    size_t bytes = 0;
    lt_.MatmulAlgoCapGetAttribute(&algorithm, which, nullptr, 0, &bytes);
    std::vector<uint32_t> ids(bytes / sizeof(uint32_t));
    if (ids.empty()) return {0};
    lt_.MatmulAlgoCapGetAttribute(&algorithm, which, ids.data(), bytes, &bytes);
    return ids;
  }

  bool SplitOfId(int id, CublasPlan* plan) {
    cublasLtMatmulAlgo_t algorithm;
    if (lt_.MatmulAlgoInit(handle_, compute_, scale_, input_, input_, output_, output_, id,
                           &algorithm) != CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    const auto stages = Capabilities(algorithm, CUBLASLT_ALGO_CAP_STAGES_IDS);
    for (const uint32_t tile : Capabilities(algorithm, CUBLASLT_ALGO_CAP_TILE_IDS)) {
      lt_.MatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                       sizeof(tile));
      for (const uint32_t stage : stages) {
        lt_.MatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stage,
                                         sizeof(stage));
        if (TakesSplit(algorithm, plan)) return true;
      }
    }
    return false;
  }

  const CublasLt& lt_;
  cublasLtHandle_t handle_;
  const Product& product_;
  const CublasLimits& limits_;
  const cudaDataType_t input_;
  const cudaDataType_t output_;
  const cublasComputeType_t compute_;
  const cudaDataType_t scale_;
};

template <typename T>
int Attribute(const CublasLt& lt, const CublasPlan& plan,
              cublasLtMatmulAlgoConfigAttributes_t which) {
  T value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      lt.MatmulAlgoConfigGetAttribute(&plan.algorithm, which, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? static_cast<int>(value) : -1;
}

}  // namespace

absl::StatusOr<CublasPlan> PlanOf(const CublasLt& lt, cublasLtHandle_t handle,
                                  const Product& product, const CublasLimits& limits) {
  return Planner(lt, handle, product, limits).Run();
}

Algorithm AlgorithmOf(const CublasLt& lt, const CublasPlan& plan) {
  Algorithm a;
  a.id = Attribute<int32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_ID);
  a.tile = Attribute<uint32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_TILE_ID);
  a.stages = Attribute<uint32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  a.split_k = Attribute<int32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  a.reduction = Attribute<uint32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  a.swizzling = Attribute<uint32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  a.custom = Attribute<uint32_t>(lt, plan, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  a.inner_shape = Attribute<uint16_t>(lt, plan, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
  a.cluster_shape = Attribute<uint16_t>(lt, plan, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  a.workspace_bytes = plan.workspace_bytes;
  a.waves = plan.waves;
  return a;
}

}  // namespace plumbline::bench
