// Where a file belongs, by its path: which run, which step, which rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace plumbline::audit {

// Of Megatron's mp_rank_TT[_PPP], DeepSpeed's zero_pp_rank_D_mp_rank_TT and plain rank numbers
// (rank_3.pt, model_rank-3.pt, step-4/dp_rank_3/model.pt): which part of the model a file holds.
struct RankTag {
  bool ranked = false;
  uint32_t stage = 0;   // of the pipeline
  uint32_t tensor = 0;  // of tensor parallelism
  uint32_t data = 0;    // of data parallelism
  bool shard = false;   // zero_pp_rank: a part that no other rank holds
  bool plain = false;   // a number alone: whether ranks hold copies or shards is not said

  auto Order() const { return std::tie(stage, tensor, data); }
};

struct CheckpointPlace {
  std::string run;   // the folder that holds the steps
  std::string path;  // of that folder, which tells runs of one name apart
  std::optional<int64_t> step;
  RankTag rank;
};

// "runs/exp/global_step500/mp_rank_00_model_states.pt": run exp, step 500, rank 0. The innermost
// part of the path that names a step gives it (step-1000, global_step500, iter_0001000,
// checkpoint-1500, ckpt_1000.pt, epoch=3-step=1000.ckpt); without one the run is the file's folder.
CheckpointPlace PlaceOf(const std::string& path);

// The step that a name says: "step", "iter" and the like win over "checkpoint" and "ckpt".
std::optional<int64_t> StepOfName(std::string_view name);
RankTag RankOfPath(std::string_view path);
// "model.pt.tmp", "tmp-checkpoint-500/model.pt": what a writer renames when it is whole.
bool IsLeftover(const std::string& path);

}  // namespace plumbline::audit
