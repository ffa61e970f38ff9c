// The order in which transformers makes the parameters of a model whose files are sorted by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/contents.h"

namespace plumbline::audit {

// Names of the parameters of an optimizer that Hugging Face's Trainer made: a group with weight
// decay (matrices) and one without (biases, gains), or one of all, each in the order of the model.
// safetensors sorts by name, so the order is made again from names that are known (Llama, Qwen,
// Mistral, Gemma, Phi-3, GPT-2, BERT, and LoRA on them). Empty if a name is not known, if the
// groups hold another number of parameters, or if one shape does not fit. `model`: the tensors of
// all files of the model.
std::map<int64_t, std::string> NamesInTransformersOrder(
    const std::vector<const NamedTensor*>& model, const std::vector<const NamedTensor*>& state,
    const std::vector<ParameterGroup>& groups);

}  // namespace plumbline::audit
