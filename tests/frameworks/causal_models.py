"""Small decoders of transformers with random weights: {name: function that returns (model, options of check_causality)}."""

import torch
import transformers as T

WIDTH, VOCABULARY = 32, 64
_COMMON = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "num_local_experts": 4, "moe_intermediate_size": 24}
_LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "n_shared_experts": 1,
           "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_key_value_heads": 4,
           "head_dim": 8}  # fmt: skip
_GPT = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 1, "eos_token_id": 2}

# {name: (prefix of the classes, options of the configuration)}
KINDS = {
    "llama": ("Llama", {}),
    "llama-linear-rope": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "mistral-window": ("Mistral", {"sliding_window": 6}),
    "mixtral": ("Mixtral", _EXPERTS),
    "qwen2": ("Qwen2", {}),
    "qwen2-moe": ("Qwen2Moe", {**_EXPERTS, "shared_expert_intermediate_size": 24}),
    "qwen3": ("Qwen3", {"head_dim": 8}),
    "qwen3-moe": ("Qwen3Moe", {**_EXPERTS, "head_dim": 8}),
    "qwen3-next": ("Qwen3Next", {**_EXPERTS, "head_dim": 8, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
                                 "linear_value_head_dim": 8, "shared_expert_intermediate_size": 24,
                                 "layer_types": ["linear_attention", "full_attention"]}),
    "deepseek-v2": ("DeepseekV2", _LATENT),
    "deepseek-v3": ("DeepseekV3", _LATENT),
    "gpt-neox": ("GPTNeoX", {}),
    "gpt-neo": ("GPTNeo", {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4, "window_size": 6}),
    "gpt2": ("GPT2", _GPT),
    "gpt-j": ("GPTJ", {**_GPT, "rotary_dim": 4}),
    "gpt-bigcode": ("GPTBigCode", _GPT),
    "codegen": ("CodeGen", {**_GPT, "rotary_dim": 4}),
    "gpt-oss": ("GptOss", {**_EXPERTS, "head_dim": 8, "sliding_window": 6, "num_local_experts": 4}),
    "mamba": ("Mamba", {"state_size": 4}),
    "mamba2": ("Mamba2", {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8}),
    "rwkv": ("Rwkv", {"context_length": 128, "attention_hidden_size": WIDTH}),
    "gemma": ("Gemma", {"head_dim": 8}),
    "gemma2": ("Gemma2", {"head_dim": 8, "sliding_window": 6}),
    "gemma3": ("Gemma3", {"head_dim": 8, "sliding_window": 6}),
    "olmo": ("Olmo", {}),
    "olmo2": ("Olmo2", {}),
    "olmoe": ("Olmoe", _EXPERTS),
    "phi": ("Phi", {}),
    "phi3": ("Phi3", {}),
    "phimoe": ("Phimoe", _EXPERTS),
    "falcon": ("Falcon", {"alibi": False}),
    "falcon-alibi": ("Falcon", {"alibi": True}),
    "falcon-h1": ("FalconH1", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8}),
    "bloom": ("Bloom", {"n_head": 4, "n_layer": 2}),
    "opt": ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": WIDTH}),
    "stablelm": ("StableLm", {}),
    "cohere": ("Cohere", {}),
    "cohere2": ("Cohere2", {"sliding_window": 6, "head_dim": 8}),
    "granite": ("Granite", {}),
    "granite-moe": ("GraniteMoe", _EXPERTS),
    "jamba": ("Jamba", {**_EXPERTS, "use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
                        "expert_layer_offset": 1, "mamba_d_state": 4}),
    "bamba": ("Bamba", {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8, "attn_layer_indices": [1]}),
    "recurrent-gemma": ("RecurrentGemma", {"attention_window_size": 6, "lru_width": WIDTH, "num_hidden_layers": 3}),
    "nemotron": ("Nemotron", {}),
    "starcoder2": ("Starcoder2", {}),
    "xglm": ("XGLM", {"d_model": WIDTH, "attention_heads": 4, "num_layers": 2, "ffn_dim": 48}),
    "mpt": ("Mpt", {"d_model": WIDTH, "n_heads": 4, "n_layers": 2, "max_seq_len": 128}),
    "persimmon": ("Persimmon", {}),
    "ernie4.5": ("Ernie4_5", {"head_dim": 8}),
    "glm4": ("Glm4", {"head_dim": 8}),
    "smollm3": ("SmolLM3", {}),
    "helium": ("Helium", {"head_dim": 8}),
    "lfm2": ("Lfm2", {"layer_types": ["conv", "full_attention"], "block_ff_dim": 48}),
    "minimax": ("MiniMax", {**_EXPERTS, "head_dim": 8, "block_size": 8, "layer_types": ["linear_attention", "full_attention"]}),
    "biogpt": ("BioGpt", {}),
    "ctrl": ("CTRL", {"n_embd": WIDTH, "dff": 48, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "openai-gpt": ("OpenAIGPT", _GPT),
}  # fmt: skip


def _config(name, options):
    for prefix in (f"{name}TextConfig", f"{name}Config"):
        kind = getattr(T, prefix, None)
        if kind is not None:
            return kind(**{**_COMMON, **options})
    return None


_HEADS = {"GPT2": "GPT2LMHeadModel", "CTRL": "CTRLLMHeadModel", "OpenAIGPT": "OpenAIGPTLMHeadModel"}


def make(name):
    """Returns (model, options), or None if this version of transformers has no such model."""
    if name == "t5-decoder":
        return _t5()
    prefix, options = KINDS[name]
    config, kind = _config(prefix, options), getattr(T, _HEADS.get(prefix, f"{prefix}ForCausalLM"), None)
    return None if config is None or kind is None else (kind(config), {})


def _t5():
    config = T.T5Config(vocab_size=VOCABULARY, d_model=WIDTH, d_kv=8, d_ff=48, num_layers=2, num_heads=4, pad_token_id=0, decoder_start_token_id=0)
    ids = torch.randint(3, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(4))
    return T.T5ForConditionalGeneration(config), {"argument": "decoder_input_ids", "inputs": {"input_ids": ids}}


NAMES = [*KINDS, "t5-decoder"]


def tokens():
    return torch.randint(3, VOCABULARY, (3, 24), generator=torch.Generator().manual_seed(3))
