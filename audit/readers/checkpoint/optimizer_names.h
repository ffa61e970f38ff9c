// Finds the parameter of an optimizer's state: torch.optim uses a running number as the key.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/contents.h"

namespace plumbline::audit {

// Returns number -> name. Numbers count the parameters group by group, in the order in which the
// model names them. Returns a name only if the assignment is unique: the first tensors of the model
// whose shapes fit in this order are also the last ones that fit. Parameters that share their
// storage count once; running statistics of a normalisation do not count. `model`: the tensors of a
// model in its own order.
std::map<int64_t, std::string> NamesOfParameters(const std::vector<const NamedTensor*>& model,
                                                 const std::vector<const NamedTensor*>& state,
                                                 const std::vector<ParameterGroup>& groups);

// Returns the names for an optimizer of Hugging Face's Trainer: a group with weight decay
// (matrices) and one without (biases, gains), or one group of all, each in the order of the model.
// safetensors sorts by name, so the model's order is reconstructed from known names (Llama, Qwen,
// Mistral, Gemma, Phi-3, GPT-2, BERT, and LoRA on them). If a name is not known, the groups have
// another number of parameters, or a shape does not fit, returns an empty map. `model`: the tensors
// of all files of the model.
std::map<int64_t, std::string> NamesInTransformersOrder(
    const std::vector<const NamedTensor*>& model, const std::vector<const NamedTensor*>& state,
    const std::vector<ParameterGroup>& groups);

}  // namespace plumbline::audit
