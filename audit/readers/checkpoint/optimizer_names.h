// Which parameter an optimizer's state belongs to: torch.optim keys it by a running number.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/contents.h"

namespace plumbline::audit {

// A number counts the parameters group by group, in the order in which the model names them. What
// is told is what only one such order fits: the first tensors of the model whose shapes fit in this
// order and the last ones are the same. Parameters that share their storage count once; running
// statistics of a normalisation count as none. `model`: the tensors of a model in its own order.
std::map<int64_t, std::string> NamesOfParameters(const std::vector<const NamedTensor*>& model,
                                                 const std::vector<const NamedTensor*>& state,
                                                 const std::vector<ParameterGroup>& groups);

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
