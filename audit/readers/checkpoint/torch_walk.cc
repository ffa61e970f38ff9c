#include "audit/readers/checkpoint/torch_walk.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/printable.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostTorchNameBytes = 512;
constexpr std::string_view kMasterLists = "fp32_from_fp16_params";
constexpr int kMostTops = 4;  // limit of nested dicts around the parts with a known name

std::string LowerOfName(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// Returns true if the key contains the word: "state_dict_ema" has "ema".
bool HasWord(const std::string& key, std::string_view word) {
  for (size_t at = key.find(word); at != std::string::npos; at = key.find(word, at + 1)) {
    const size_t end = at + word.size();
    const auto apart = [](char c) { return c == '_' || c == '.' || c == '-'; };
    if ((at == 0 || apart(key[at - 1])) && (end == key.size() || apart(key[end]))) return true;
  }
  return false;
}

enum class Top { kModel, kAverage, kOptimizer, kStep, kLeave, kUnknown };

// Returns the kind of an entry of a checkpoint's outermost dicts, by its name.
Top TopOf(const std::string& key) {
  constexpr std::string_view kModels[] = {
      "state_dict", "model",   "module",      "model_state_dict", "net",
      "network",    "weights", "model_state", "params",           "model_states"};
  constexpr std::string_view kSteps[] = {"step",         "global_step", "iteration",
                                         "global_steps", "steps",       "iter"};
  if (HasWord(key, "ema") || key == "shadow_params") return Top::kAverage;
  if (key.starts_with("optim")) return Top::kOptimizer;
  for (const std::string_view name : kModels) {
    if (key == name) return Top::kModel;
  }
  // model0, model1, ... are virtual pipeline stages.
  if (key.starts_with("model") && key.find_first_not_of("0123456789", 5) == std::string::npos)
    return Top::kModel;
  for (const std::string_view name : kSteps) {
    if (key == name) return Top::kStep;
  }
  const bool leave = key.find("sched") != std::string::npos || key.starts_with("rng") ||
                     key.ends_with("rng_state") || key == "scaler" || key == "args" ||
                     key == "random" || key == "callbacks" || key == "loops";
  return leave ? Top::kLeave : Top::kUnknown;
}

class TorchWalk {
 public:
  TorchWalk(const TorchFile& file, CheckpointContents* contents, FileFindings* findings)
      : file_(file), tree_(file.tree()), contents_(*contents), findings_(*findings) {}

  std::optional<Problem> Walk() {
    const PickleId root = Opened(tree_.root());
    if (HasTensors(root) && !HasParts(root)) {
      Flatten(root, Part::kModel, "");
    } else if (tree_.Find(root, "param_groups") != kNoPickle) {
      WalkOptimizer(root, "");  // the file is a separate optimizer.pt
    } else if (tree_.Find(root, "last_epoch") != kNoPickle) {
      TakeSchedule(root);
    } else {
      WalkTop(root, "", 0);
    }
    for (const auto& [id, prefix] : masters_) TakeMasters(id, prefix);
    contents_.ordered = true;
    if (contents_.tensors.size() >= kMostTensors)
      return Problem{0, "expected fewer than " + std::to_string(kMostTensors) +
                            " tensors in a file, found more"};
    return std::nullopt;
  }

 private:
  // Returns the content of a container of an unknown class: a subclass of a dict or list, a
  // namedtuple, an object whose members are the parts of a checkpoint. For any other value, returns
  // the value.
  PickleId Opened(PickleId id) const {
    const std::string_view callee = tree_.callee(id);
    if (callee.empty() || IsKnownRecord(callee) || callee.starts_with("torch._") ||
        callee.starts_with("builtins.") || IsModule(id))
      return id;
    const PickleCall& call = tree_.call(id);
    if (call.entries != kNoPickle) return call.entries;
    if (call.items != kNoPickle) return call.items;
    if (call.state == kNoPickle) return tree_.items(call.arguments).empty() ? id : call.arguments;
    return HasParts(call.state) ? call.state : id;
  }

  bool HasEntries(PickleId id) const {
    return tree_.Is(id, PickleKind::kCall) && tree_.call(id).entries != kNoPickle;
  }

  // Returns true for a state dict: a dict with tensors directly in it.
  bool HasTensors(PickleId id) const {
    id = Opened(id);
    if (!tree_.Is(id, PickleKind::kDict)) return IsTensor(id);
    const std::vector<PickleId>& pairs = tree_.items(id);
    for (size_t i = 1; i < pairs.size(); i += 2) {
      if (IsTensor(pairs[i])) return true;
    }
    return false;
  }

  // Returns true for a dict that has parts with known names. It may have other entries (a random
  // state).
  bool HasParts(PickleId id) const {
    if (!tree_.Is(id, PickleKind::kDict)) return false;
    const std::vector<PickleId>& pairs = tree_.items(id);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const Top top = TopOf(LowerOfName(KeyText(pairs[i])));
      const bool part = top == Top::kModel || top == Top::kAverage || top == Top::kOptimizer;
      // Do not call Opened here, because Opened calls HasParts: objects that refer to each other
      // would recurse without end.
      if (part && (tree_.Is(pairs[i + 1], PickleKind::kDict) || HasEntries(pairs[i + 1])))
        return true;
    }
    return false;
  }

  bool IsTensor(PickleId id) const {
    std::string wrong;
    return file_.Tensor(id, &wrong).has_value() || !wrong.empty();
  }

  static std::string Under(const std::string& prefix, const std::string& name) {
    if (prefix.empty()) return name;
    return (prefix + "." + name).substr(0, kMostTorchNameBytes);
  }

  std::string KeyText(PickleId id) const {
    if (tree_.Is(id, PickleKind::kText))
      return ValidUtf8(tree_.text(id).substr(0, kMostTorchNameBytes));
    if (tree_.Is(id, PickleKind::kInt)) return std::to_string(tree_.whole(id));
    return "?";
  }

  void WalkTop(PickleId id, const std::string& prefix, int depth) {
    id = Opened(id);
    if (!tree_.Is(id, PickleKind::kDict))
      return Flatten(id, IsModule(id) ? Part::kModel : Part::kOther, prefix);
    const std::vector<PickleId>& pairs = tree_.items(id);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const std::string key = KeyText(pairs[i]);
      const PickleId value = pairs[i + 1];
      switch (TopOf(LowerOfName(key))) {
        case Top::kModel:
          Flatten(value, Part::kModel, StageOf(key));
          break;
        case Top::kAverage:
          WalkAverage(value);
          break;
        case Top::kOptimizer:
          WalkOptimizer(value, "");
          break;
        case Top::kStep:
          TakeStep(value);
          break;
        case Top::kLeave:
          TakeSchedule(value);
          break;
        case Top::kUnknown:
          if (tree_.Is(Opened(value), PickleKind::kDict) && depth < kMostTops &&
              (HasParts(Opened(value)) || !HasTensors(value))) {
            WalkTop(value, Under(prefix, key), depth + 1);
          } else {
            Flatten(value, Part::kOther, Under(prefix, key));
          }
      }
    }
  }

  // Reads an average of the weights. It is a dict of tensors by name, or a list in the order of the
  // parameters. The list may be the value itself, or `shadow_params` in the state of an object.
  void WalkAverage(PickleId id) {
    id = Opened(id);
    if (const PickleId list = tree_.Find(id, "shadow_params"); list != kNoPickle) {
      const std::vector<PickleId>& pairs = tree_.items(id);
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        if (pairs[i + 1] != list) Flatten(pairs[i + 1], Part::kOther, "ema." + KeyText(pairs[i]));
      }
      id = list;
    }
    if (!tree_.Is(id, PickleKind::kList)) return Flatten(id, Part::kAverage, "");
    const std::vector<PickleId>& items = tree_.items(id);
    for (size_t i = 0; i < items.size() && contents_.tensors.size() < kMostTensors; ++i) {
      if (!Take(items[i], Part::kAverage, std::to_string(i), static_cast<int64_t>(i), ""))
        Flatten(items[i], Part::kAverage, std::to_string(i));
    }
  }

  // Returns the key if it names one stage of the model ("model1"). Returns "" for "model", which is
  // the whole model.
  static std::string StageOf(const std::string& key) {
    const bool stage = key.starts_with("model") && key.size() > 5 && key[5] >= '0' && key[5] <= '9';
    return stage ? key : "";
  }

  void TakeStep(PickleId id) {
    const std::optional<double> value = file_.Number(id);
    if (!value || contents_.step) return;
    if (*value >= 0 && *value < 0x1p53 && *value == std::floor(*value))
      contents_.step = static_cast<int64_t>(*value);
  }

  static void TakeLargest(const std::optional<double>& value, std::optional<double>* largest) {
    // Keeps NaN, so that it is reported.
    if (value && (!*largest || !(*value <= **largest))) *largest = value;
  }

  // Reads a scheduler's state_dict. For a list of them, reads the first.
  void TakeSchedule(PickleId id) {
    id = Opened(id);
    if (tree_.Is(id, PickleKind::kList) && !tree_.items(id).empty())
      id = Opened(tree_.items(id)[0]);
    const PickleId epoch = tree_.Find(id, "last_epoch");
    if (epoch != kNoPickle && !contents_.scheduler_step)
      contents_.scheduler_step = file_.Number(epoch);
  }

  // Adds every tensor below a value.
  void Flatten(PickleId id, Part part, const std::string& name) {
    if (contents_.tensors.size() >= kMostTensors) return;
    if (Take(id, part, name, std::nullopt, "")) return;
    id = Opened(id);
    const PickleKind kind = tree_.kind(id);
    if (kind == PickleKind::kDict) {
      const std::vector<PickleId>& pairs = tree_.items(id);
      for (size_t i = 0; i + 1 < pairs.size(); i += 2)
        Flatten(pairs[i + 1], part, Under(name, KeyText(pairs[i])));
    } else if (kind == PickleKind::kList || kind == PickleKind::kTuple) {
      const std::vector<PickleId>& items = tree_.items(id);
      for (size_t i = 0; i < items.size(); ++i)
        Flatten(items[i], part, Under(name, std::to_string(i)));
    } else if (IsModule(id)) {
      const PickleId state = tree_.call(id).state;
      for (const std::string_view group : {"_parameters", "_buffers", "_modules"}) {
        const PickleId members = tree_.Find(state, group);
        if (members != kNoPickle) Flatten(members, part, name);
      }
    }
  }

  // Returns true for a module that was saved as an object. Its class is not interpreted; its
  // tensors are in its state.
  bool IsModule(PickleId id) const {
    return tree_.Is(id, PickleKind::kCall) && tree_.call(id).state != kNoPickle &&
           tree_.Find(tree_.call(id).state, "_parameters") != kNoPickle;
  }

  // If the value is a tensor, adds it or reports its problem, and returns true.
  bool Take(PickleId id, Part part, const std::string& name, std::optional<int64_t> parameter,
            const std::string& parameter_name) {
    std::string wrong;
    std::optional<StoredTensor> place = file_.Tensor(id, &wrong);
    if (!place) {
      if (wrong.empty()) return false;
      findings_.problems.push_back({file_.byte(id), wrong + " (" + Quoted(name) + ")"});
      return true;
    }
    contents_.tensors.push_back({part, name, parameter, parameter_name, *std::move(place), id});
    return true;
  }

  // Reads torch.optim's state_dict, a list of them, or a trainer's own dict around one.
  void WalkOptimizer(PickleId id, const std::string& prefix) {
    id = Opened(id);
    const PickleId state = Opened(tree_.Find(id, "state"));
    const PickleId groups = Opened(tree_.Find(id, "param_groups"));
    if (tree_.Is(id, PickleKind::kDict)) {
      const std::vector<PickleId>& pairs = tree_.items(id);
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        const PickleId opened = Opened(pairs[i + 1]);
        if (opened == state && tree_.Is(state, PickleKind::kDict)) {
          WalkState(state);
        } else if (opened == groups) {
          WalkGroups(groups);
        } else if (KeyText(pairs[i]) == kMasterLists) {
          masters_.emplace_back(pairs[i + 1], Under(prefix, KeyText(pairs[i])));
        } else {
          WalkOptimizer(pairs[i + 1], Under(prefix, KeyText(pairs[i])));
        }
      }
    } else if (tree_.Is(id, PickleKind::kList)) {
      const std::vector<PickleId>& items = tree_.items(id);
      for (size_t i = 0; i < items.size(); ++i)
        WalkOptimizer(items[i], items.size() > 1 ? Under(prefix, std::to_string(i)) : prefix);
    } else {
      Flatten(id, Part::kOptimizer, prefix);
    }
  }

  // Reads {parameter: {"exp_avg": tensor, "step": number, ...}}.
  void WalkState(PickleId state) {
    const std::vector<PickleId>& pairs = tree_.items(state);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      std::optional<int64_t> parameter;
      std::string name;
      if (tree_.Is(pairs[i], PickleKind::kInt)) {
        parameter = tree_.whole(pairs[i]);
      } else {
        name = KeyText(pairs[i]);
      }
      const PickleId of = Opened(pairs[i + 1]);
      if (!tree_.Is(of, PickleKind::kDict)) continue;
      const std::vector<PickleId>& kept = tree_.items(of);
      for (size_t k = 0; k + 1 < kept.size(); k += 2) {
        const std::string key = KeyText(kept[k]);
        if (key == "step") {
          TakeLargest(file_.Number(kept[k + 1]), &contents_.optimizer_step);
          continue;
        }
        if (!Take(kept[k + 1], Part::kOptimizer, key, parameter, name) &&
            tree_.Is(kept[k + 1], PickleKind::kDict)) {
          Flatten(kept[k + 1], Part::kOptimizer, Under("state." + KeyText(pairs[i]), key));
        }
      }
    }
  }

  // Reads Megatron's fp32 parameters: one list per group, in the order of its parameters. If the
  // counts are equal, each entry is the master of the parameter at its place. Otherwise some
  // parameters are fp32 themselves, and the parameters of the masters are unknown.
  void TakeMasters(PickleId id, const std::string& prefix) {
    const std::vector<ParameterGroup>& groups = contents_.groups;
    bool fits = tree_.Is(id, PickleKind::kList) && tree_.items(id).size() == groups.size();
    for (size_t g = 0; fits && g < groups.size(); ++g) {
      const PickleId list = tree_.items(id)[g];
      fits = tree_.Is(list, PickleKind::kList) &&
             tree_.items(list).size() == groups[g].parameters.size();
    }
    if (!fits) return Flatten(id, Part::kOptimizer, prefix);
    for (size_t g = 0; g < groups.size(); ++g) {
      const std::vector<PickleId>& list = tree_.items(tree_.items(id)[g]);
      for (size_t i = 0; i < list.size() && contents_.tensors.size() < kMostTensors; ++i)
        Take(list[i], Part::kOptimizer, "master_param", groups[g].parameters[i], "");
    }
  }

  void WalkGroups(PickleId groups) {
    if (!tree_.Is(groups, PickleKind::kList)) return;
    for (const PickleId each : tree_.items(groups)) {
      const PickleId one = Opened(each);
      ParameterGroup group;
      if (const PickleId rate = tree_.Find(one, "lr"); rate != kNoPickle) {
        const std::optional<double> value = file_.Number(rate);
        group.rated = value.has_value();
        group.rate = value.value_or(0);
      }
      if (const PickleId betas = tree_.Find(one, "betas");
          (tree_.Is(betas, PickleKind::kTuple) || tree_.Is(betas, PickleKind::kList)) &&
          tree_.items(betas).size() >= 2) {
        group.beta1 = file_.Number(tree_.items(betas)[0]);
        group.beta2 = file_.Number(tree_.items(betas)[1]);
      }
      if (const PickleId epsilon = tree_.Find(one, "eps"); epsilon != kNoPickle)
        group.epsilon = file_.Number(epsilon);
      // Fused optimizers keep one step per group.
      if (const PickleId step = tree_.Find(one, "step"); step != kNoPickle)
        TakeLargest(file_.Number(step), &contents_.optimizer_step);
      const PickleId list = tree_.Find(one, "params");
      if (tree_.Is(list, PickleKind::kList)) {
        for (const PickleId parameter : tree_.items(list)) {
          if (tree_.Is(parameter, PickleKind::kInt))
            group.parameters.push_back(tree_.whole(parameter));
          if (tree_.Is(parameter, PickleKind::kText)) group.names.push_back(KeyText(parameter));
        }
      }
      contents_.groups.push_back(std::move(group));
    }
  }

  const TorchFile& file_;
  const PickleTree& tree_;
  CheckpointContents& contents_;
  FileFindings& findings_;
  std::vector<std::pair<PickleId, std::string>> masters_;  // lists, with the names on the path to
                                                           // them
};

}  // namespace

std::optional<Problem> WalkTorchFile(const TorchFile& file, CheckpointContents* contents,
                                     FileFindings* findings) {
  return TorchWalk(file, contents, findings).Walk();
}

}  // namespace plumbline::audit
