#include "analysis/timeline/names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>

namespace plumbline::timeline {
namespace {

using Gap = v1::TimelineGap;

// Bytes of a name that are read, because templates can have thousands.
constexpr size_t kMostRead = 512;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }
bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
}

// A name in lower case on the stack.
class Small {
 public:
  // If `joined`, removes word separators, which differ between spellings.
  Small(std::string_view name, bool joined) {
    for (const char c : name.substr(0, kMostRead)) {
      if (joined && (c == '_' || c == '-' || c == ' ')) continue;
      text_[size_++] = Lower(c);
    }
  }
  std::string_view text() const { return {text_.data(), size_}; }
  bool Has(std::string_view part) const { return text().find(part) != std::string_view::npos; }
  bool HasAny(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view part) { return Has(part); });
  }
  // Returns true if `word` occurs as a separate word: not next to a letter or digit.
  bool HasWord(std::string_view word) const {
    const std::string_view all = text();
    for (size_t at = all.find(word); at != std::string_view::npos; at = all.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at == 0 || !IsLetterOrDigit(all[at - 1])) &&
          (end == all.size() || !IsLetterOrDigit(all[end])))
        return true;
    }
    return false;
  }
  bool HasAnyWord(std::initializer_list<std::string_view> words) const {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return HasWord(word); });
  }

 private:
  std::array<char, kMostRead> text_;
  size_t size_ = 0;
};

bool IsGarbageCollection(const Small& name) {
  return name.HasAnyWord({"gc", "garbage"}) || name.Has("<built-in function collect>");
}

bool IsCheckpoint(const Small& name) {
  if (name.HasAny({"utils/checkpoint.py", "checkpointfunction", "recompute", "checkpoint_wrapper",
                   "activation_checkpoint", "activation checkpoint", "gradient_checkpoint",
                   "gradient checkpoint", "checkpoint_sequential", "checkpoint_hook"}))
    return false;
  return name.HasAnyWord({"checkpoint", "checkpoints", "checkpointing", "ckpt"}) ||
         name.HasAny({"torch.save", "torch/serialization.py", "state_dict_saver", "save_checkpoint",
                      "checkpointer"});
}

bool IsDataLoading(const Small& name) {
  return name.HasAny({"dataloader",    "data_loader", "data loader",       "data_loading",
                      "data loading",  "dataloading", "load_data",         "load data",
                      "get_batch",     "get batch",   "next_batch",        "next batch",
                      "load_batch",    "fetch_batch", "data_fetch",        "data fetch",
                      "data_wait",     "data wait",   "torch/utils/data/", "data_iterator",
                      "input_pipeline"}) ||
         name.text() == "data";
}

bool IsCompilation(const Small& name) {
  if (name.HasAny({"torch-compiled region", "torchcompiled region", "compiledfxgraph", "eval_frame",
                   "compiledfunction", "dynamo cache lookup", "torch/_compile.py"}))
    return false;
  return name.HasAnyWord({"compile", "compiling", "compilation", "recompile", "recompilation",
                          "autotune", "autotuning", "compile_fx", "nvrtc"}) ||
         name.HasAny({"nvrtccompile", "compileprogram", "jit_compile"});
}

// Returns true for calls that wait for the GPU. Copies of the runtime that are not asynchronous
// block.
bool IsSynchronisation(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (name.ends_with("Synchronize") || has("Synchronize_") || has("ynchronize(")) return true;
  if (name == "aten::item" || has("_local_scalar_dense")) return true;
  return (name.starts_with("cudaMemcpy") || name.starts_with("hipMemcpy") ||
          name.starts_with("cuMemcpy")) &&
         !has("Async");
}

// Returns the name without a project's folders, which do not show what it does:
// "/home/me/checkpoint_runs/train.py(3): step" gives "train.py(3): step". Libraries' own paths do
// show it, so they stay.
std::string_view WithoutFolders(std::string_view name) {
  const size_t python = name.find(".py(");
  if (python == name.npos) return name;
  for (const std::string_view library : {"torch/", "deepspeed/", "megatron/", "lightning/"}) {
    // After the last folder of that name, but not if a project has that name.
    const size_t at = name.rfind(library, python);
    if (at != name.npos && (at == 0 || name.find("site-packages/") != name.npos ||
                            name.find("dist-packages/") != name.npos))
      return name.substr(at);
  }
  const size_t slash = name.rfind('/', python);
  return slash == name.npos ? name : name.substr(slash + 1);
}

// Returns true if "ep::" is a namespace of its own, or of deep_ep; "step::" does not count.
bool HasExpertNamespace(std::string_view lower) {
  for (size_t at = lower.find("ep::"); at != std::string_view::npos;
       at = lower.find("ep::", at + 1)) {
    if (at == 0 || (!IsLetterOrDigit(lower[at - 1]) && lower[at - 1] != '_')) return true;
  }
  return false;
}

}  // namespace

Gap::Cause CauseOf(int i) {
  static constexpr Gap::Cause kOrder[kHostClasses] = {
      Gap::CAUSE_GARBAGE_COLLECTION, Gap::CAUSE_CHECKPOINT,    Gap::CAUSE_DATA_LOADING,
      Gap::CAUSE_COMPILATION,        Gap::CAUSE_COMMUNICATION, Gap::CAUSE_SYNCHRONISATION};
  return kOrder[i];
}

const char* CauseName(Gap::Cause cause) {
  switch (cause) {
    case Gap::CAUSE_GARBAGE_COLLECTION:
      return "garbage-collection";
    case Gap::CAUSE_CHECKPOINT:
      return "checkpoint";
    case Gap::CAUSE_DATA_LOADING:
      return "data-loading";
    case Gap::CAUSE_COMPILATION:
      return "compilation";
    case Gap::CAUSE_COMMUNICATION:
      return "communication";
    case Gap::CAUSE_SYNCHRONISATION:
      return "synchronisation";
    default:
      return "unknown";
  }
}

uint8_t ClassesOfHost(std::string_view name) {
  uint8_t classes = IsSynchronisation(name) ? kSynchronisation : 0;
  // Operators of the tensor library belong to none of the other classes, and they are most of a
  // trace.
  if (name.starts_with("aten::") || name.starts_with("autograd::")) return classes;
  const Small small(WithoutFolders(name), false);
  if (IsGarbageCollection(small)) classes |= kGarbageCollection;
  if (IsCheckpoint(small)) classes |= kCheckpoint;
  if (IsDataLoading(small)) classes |= kDataLoading;
  if (IsCompilation(small)) classes |= kCompilation;
  if (small.HasAny({"nccl:", "gloo:", "c10d::", "record_param_comms", "processgroup"}) ||
      IsCommunicationKernel(name))
    classes |= kCommunication;
  return classes;
}

bool IsLaunch(std::string_view name) {
  return name.find("Launch") != name.npos || name.find("Memcpy") != name.npos ||
         name.find("Memset") != name.npos;
}

bool IsCommunicationKernel(std::string_view name) {
  if (name.find("at::native") != name.npos || name.starts_with("triton_")) return false;
  const Small joined(name, true);
  if (joined.HasAny({"nccl", "rccl", "nvshmem", "deepep", "symmmem", "multimem", "all2all",
                     "alltoall", "allreduce", "allgather", "reducescatter", "oneshot", "twoshot",
                     "crossdevicereduce"}))
    return true;
  return joined.Has("ep::") && HasExpertNamespace(Small(name, false).text());
}

bool IsPointToPoint(std::string_view collective) {
  const Small name(collective, false);
  return name.HasAny({"send", "recv"}) && !name.Has("all");
}

bool StatesTraining(std::string_view name) {
  if (name.starts_with("autograd::") || name.starts_with("Optimizer.")) return true;
  const Small small(WithoutFolders(name), false);
  return small.HasAny({"backward", "optimizer", "multi_tensor_apply", "wgrad", "dgrad"}) ||
         small.HasAnyWord({"bwd", "adam", "adamw", "sgd"});
}

bool StepMark(std::string_view name, int64_t* number) {
  constexpr std::string_view kMark = "ProfilerStep#";
  if (!name.starts_with(kMark)) return false;
  name.remove_prefix(kMark.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), *number);
  return error == std::errc() && end == name.data() + name.size();
}

}  // namespace plumbline::timeline
