// Finds the run, step and rank of a file from its path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

namespace plumbline::audit {

// The part of the model that a file holds, from Megatron's mp_rank_TT[_PPP], DeepSpeed's
// zero_pp_rank_D_mp_rank_TT and plain rank numbers (rank_3.pt, model_rank-3.pt,
// step-4/dp_rank_3/model.pt).
struct RankTag {
  bool ranked = false;
  uint32_t stage = 0;   // rank in the pipeline
  uint32_t tensor = 0;  // rank in tensor parallelism
  uint32_t data = 0;    // rank in data parallelism
  bool shard = false;   // zero_pp_rank: the file holds a part that no other rank holds
  bool plain = false;   // the name has only a rank number, so ranks may hold copies or shards

  auto Order() const { return std::tie(stage, tensor, data); }
};

struct CheckpointPlace {
  std::string run;   // name of the folder that holds the steps
  std::string path;  // path of that folder; it distinguishes runs with the same name
  std::optional<int64_t> step;
  RankTag rank;
};

// "runs/exp/global_step500/mp_rank_00_model_states.pt" is run exp, step 500, rank 0. The step is in
// the innermost part of the path that names one (step-1000, global_step500, iter_0001000,
// checkpoint-1500, ckpt_1000.pt, epoch=3-step=1000.ckpt). If no part names one, the run is the
// file's folder.
CheckpointPlace PlaceOf(const std::string& path);

// Returns the step in a name. "step", "iter" and the like take precedence over "checkpoint" and
// "ckpt".
std::optional<int64_t> StepOfName(std::string_view name);
RankTag RankOfPath(std::string_view path);
// Returns true for "model.pt.tmp", "tmp-checkpoint-500/model.pt": files that a writer renames when
// they are complete.
bool IsLeftover(const std::string& path);

}  // namespace plumbline::audit
