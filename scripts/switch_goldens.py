#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tiny Switch Transformers models and what they answer, for the tests.

    scripts/switch_goldens.py [FOLDER]

FOLDER (tests/goldens/switch) gets two folders as Hugging Face has them, with random weights:

    tied    BF16, one file, spiece.model; token_embd is the output matrix, too
    untied  F32, shards and their index, tokenizer.json; every layer of the encoder is sparse

and tied.json, untied.json and capacity.json: inputs, greedy tokens, the logits of the first steps,
and the ids of some texts. capacity.json is the model `tied` with a small expert_capacity.

Needs transformers, torch, safetensors, sentencepiece and protobuf; the tests that read the goldens do not.
Made with Debian's transformers 5.12.1, torch 2.14.1, safetensors 0.8.0, sentencepiece 0.2.2.

The logits are those of the plain functions below. Without a capacity they are compared with
transformers', once its layers share the position bias of layer 0 as T5's do and as transformers 4
had it (5.12 gives the bias to layer 0 alone). The capacity is counted as transformers 4 counts it:
token by token in the order of a sequence; a token over it gets 0 from the experts. transformers
5.12 never reaches it. The decoder takes one token at a time, so the capacity is never reached
there.
"""

import json
import math
import pathlib
import shutil
import sys
import tempfile

import safetensors
import sentencepiece
import torch
import transformers
from transformers import (SwitchTransformersConfig, SwitchTransformersForConditionalGeneration,
                          T5Tokenizer)

GOLDENS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "goldens" / "switch"
PIECES = 200
SENTINELS = 100
ROWS = 320  # of the embedding: some are of no token
LENGTHS = (2, 7, 40)  # of sources, each with its end
STEPS = 20
STEPS_WITH_LOGITS = 8
CAPACITY = 4

COMMON = {"vocab_size": ROWS, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_experts": 4,
          "decoder_start_token_id": 0, "relative_attention_num_buckets": 32,
          "relative_attention_max_distance": 128}
MODELS = {
    "tied": {"num_layers": 4, "num_decoder_layers": 4, "num_heads": 4, "num_sparse_encoder_layers": 2,
             "num_sparse_decoder_layers": 2},
    "untied": {"num_layers": 3, "num_decoder_layers": 2, "num_heads": 2,
               "num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 1, "d_ff": 32,
               "tie_word_embeddings": False},
}

CORPUS = """
Once upon a time there was a little dog who lived in a small house near the river.
Every morning the dog ran down to the water and looked at the fish in the river.
A girl with a red hat came along the path and said hello to the little dog.
The dog was happy and ran around the girl three times before he sat down.
They walked together to the market where an old man sold apples and bread.
The old man gave the girl an apple and the dog a piece of bread and smiled.
It began to rain and they had to run home as fast as they could go.
At home the mother made soup for the girl and found a warm place for the dog.
The rain did not stop for two days and the river became wide and loud.
When the sun came back, the fish had gone away and the water was brown.
The experts of a layer are matrices and the router chooses one of them for each token.
What is the answer to a question that has not been asked by the people of the town?
Numbers are written with digits such as 0 1 2 3 4 5 6 7 8 9 and with words like one or two.
The quick brown fox jumps over the lazy dog; the five boxing wizards jump quickly, too.
"Where are you going?" asked the teacher. "To the sea!" said the children, laughing.
Der Hund und das Haus sind alt, aber der Fluss ist neu. Ein kleiner Junge singt.
Le chien et la maison sont vieux, mais la mer est belle. Une petite fille chante.
"""
# What normalisation does, in Unicode numbers: ligatures, full-width letters, a tab, a soft hyphen.
RULES = [("FB01", "66 69"), ("FB02", "66 6C"), ("FF21", "41"), ("FF22", "42"), ("FF41", "61"),
         ("9", "20"), ("A", "20"), ("A0", "20"), ("AD", ""), ("65 301", "E9"), ("2026", "2E 2E 2E")]
TEXTS = ["", "a", "The little dog ran to the river.", "  two  spaces and  more ", "tab\tand\nline",
         "\ufb01sh \uff21\uff22\uff41 caf\u0065\u0301", "unknown \u6f22\u5b57 here \U0001f642",
         "<extra_id_0> the <extra_id_1> dog", "fill<extra_id_99>in", "</s> inside",
         "What is 1 + 2?", "soft\u00adhyphen\u2026", "0123456789" * 3]


def tokenizer_file(folder):
    """Trains spiece.model with T5's special tokens."""
    text = folder / "corpus.txt"
    text.write_text(CORPUS)
    rules = folder / "rules.tsv"
    rules.write_text("".join(f"{source}\t{target}\n" for source, target in RULES))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spiece"), vocab_size=PIECES,
        model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=1.0,
        normalization_rule_tsv=str(rules), num_threads=1, minloglevel=2)
    return folder / "spiece.model"


def spread(name, shape):
    """The standard deviation of a weight: attention that sees, routers that differ."""
    if name.endswith("layer_norm.weight"):
        return 0.1
    if name == "shared.weight":
        return 0.3  # less than what the layers add, or a tied model repeats itself
    if "relative_attention_bias" in name:
        return 1.0
    if "router" in name:
        return 0.4
    return {"q": 0.6, "k": 0.6, "lm_head": 1.0}.get(name.split(".")[-2], 1.5) / math.sqrt(shape[1])


def fill(model, seed, dtype):
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random) * spread(name, weight.shape)
        if name.endswith("layer_norm.weight"):
            values += 1
        weight.data = values.to(dtype).to(torch.float32)


def norm(x, weight, epsilon):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def bucket(distance, is_encoder, buckets, most):
    """The row of the bias for a key `distance` tokens behind (negative: before) the query."""
    first = 0
    if is_encoder:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    # In float32, as torch computes it.
    steps = torch.log(torch.tensor(distance / exact, dtype=torch.float32))
    steps = int(steps / math.log(most / exact) * (buckets - exact))
    return first + min(exact + steps, buckets - 1)


class Plain:
    """The model's arithmetic, a layer at a time."""

    def __init__(self, model, capacity):
        self.w = {name: weight.detach() for name, weight in model.state_dict().items()}
        self.c = model.config
        self.capacity = capacity
        self.least_margin = math.inf  # between the two best experts' probabilities
        self.dropped = 0

    def bias(self, stack, n):
        table = self.w[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        rows = [[bucket(key - query, stack == "encoder", self.c.relative_attention_num_buckets,
                        self.c.relative_attention_max_distance) for key in range(n)]
                for query in range(n)]
        made = table[torch.tensor(rows)].permute(2, 0, 1)
        if stack == "decoder":
            made = made + torch.full((n, n), -math.inf).triu(1)
        return made

    def attention(self, name, x, source, bias):
        heads = self.c.num_heads
        q, k, v = (self.w[f"{name}.{part}.weight"] for part in "qkv")

        def split(rows):
            return rows.view(len(rows), heads, self.c.d_kv).transpose(0, 1)

        scores = split(x @ q.T) @ split(source @ k.T).transpose(1, 2)
        if bias is not None:
            scores = scores + bias
        mixed = torch.softmax(scores, dim=-1) @ split(source @ v.T)
        return mixed.transpose(0, 1).reshape(len(x), -1) @ self.w[f"{name}.o.weight"].T

    def dense(self, name, x):
        return torch.relu(x @ self.w[f"{name}.wi.weight"].T) @ self.w[f"{name}.wo.weight"].T

    def feed_forward(self, name, x, capacity):
        router = self.w.get(f"{name}.router.classifier.weight")
        if router is None:
            return self.dense(name, x)
        probabilities = torch.softmax(x @ router.T, dim=-1)
        best = probabilities.topk(2).values
        self.least_margin = min(self.least_margin, float((best[:, 0] - best[:, 1]).min()))
        made = torch.zeros_like(x)
        for expert in range(self.c.num_experts):
            rows = (probabilities.argmax(-1) == expert).nonzero()[:, 0]  # in order
            self.dropped += len(rows[capacity:]) if capacity else 0
            rows = rows[:capacity]
            done = self.dense(f"{name}.experts.expert_{expert}", x[rows])
            made[rows] = probabilities[rows, expert, None] * done
        return made

    def stack(self, stack, ids, encoded):
        is_decoder = stack == "decoder"
        layers = self.c.num_decoder_layers if is_decoder else self.c.num_layers
        epsilon = self.c.layer_norm_epsilon
        x = self.w["shared.weight"][torch.tensor(ids)]
        bias = self.bias(stack, len(ids))
        for n in range(layers):
            at = f"{stack}.block.{n}.layer"
            y = norm(x, self.w[f"{at}.0.layer_norm.weight"], epsilon)
            x = x + self.attention(f"{at}.0.SelfAttention", y, y, bias)
            if is_decoder:
                y = norm(x, self.w[f"{at}.1.layer_norm.weight"], epsilon)
                x = x + self.attention(f"{at}.1.EncDecAttention", y, encoded, None)
            ff = 2 if is_decoder else 1
            y = norm(x, self.w[f"{at}.{ff}.layer_norm.weight"], epsilon)
            x = x + self.feed_forward(f"{at}.{ff}.mlp", y, None if is_decoder else self.capacity)
        return norm(x, self.w[f"{stack}.final_layer_norm.weight"], epsilon)

    def logits(self, encoded, ids):
        """Of each of the decoder's tokens."""
        x = self.stack("decoder", ids, encoded)
        if self.c.tie_word_embeddings:
            return x * self.c.d_model ** -0.5 @ self.w["shared.weight"].T
        return x @ self.w["lm_head.weight"].T


def share_bias(model):
    """All layers of a stack see the position bias of layer 0."""
    for stack in (model.encoder, model.decoder):
        first = stack.block[0].layer[0].SelfAttention
        for block in stack.block[1:]:
            block.layer[0].SelfAttention.has_relative_attention_bias = True
            block.layer[0].SelfAttention.relative_attention_bias = first.relative_attention_bias


def inputs(seed):
    random = torch.Generator().manual_seed(seed)
    for length in LENGTHS:
        ids = torch.randint(3, PIECES, (length,), generator=random).tolist()
        if length > 1:
            ids[-1] = 1
        yield ids


def run(plain, ids):
    """Greedy decoding; None if two tokens are close, or one of them ends the text."""
    encoded = plain.stack("encoder", ids, None)
    tokens = [plain.c.decoder_start_token_id]
    for _ in range(STEPS):
        logits = plain.logits(encoded, tokens)
        best = logits[-1].topk(2)
        if best.values[0] - best.values[1] < 0.002 or best.indices[0] < 3:
            return None
        tokens.append(int(best.indices[0]))
    return {"input_ids": ids, "tokens": tokens[1:],
            "logits": [[float(f"{x:.6g}") for x in row] for row in logits[:STEPS_WITH_LOGITS].tolist()]}


def answers(model, seed, capacity=None):
    plain = Plain(model, capacity)
    cases = []
    for ids in inputs(seed):
        case = run(plain, ids)
        if case is None or plain.least_margin < 0.0005 or len(set(case["tokens"])) < 3:
            return None
        cases.append(case)
    if capacity is not None and plain.dropped == 0:
        return None
    return cases


def compare(model, cases):
    """Largest difference between these logits and transformers'."""
    share_bias(model)
    worst = 0.0
    for case in cases:
        tokens = [model.config.decoder_start_token_id] + case["tokens"]
        theirs = model(input_ids=torch.tensor([case["input_ids"]]),
                       decoder_input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        assert theirs.argmax(-1).tolist()[:STEPS] == case["tokens"]
        ours = torch.tensor(case["logits"])
        worst = max(worst, float((theirs[:len(ours)] - ours).abs().max()))
    return worst


def write_json(path, name, tokenizer, cases, capacity=None):
    versions = {"transformers": transformers.__version__, "torch": torch.__version__,
                "safetensors": safetensors.__version__, "sentencepiece": sentencepiece.__version__}
    texts = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    made = {"versions": versions, "model": name, "expert_capacity": capacity, "cases": cases,
            "texts": texts}
    path.write_text(json.dumps(made, separators=(",", ":")) + "\n")


def make(name, out, spiece):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(spiece, folder / "spiece.model")
    tokenizer = T5Tokenizer.from_pretrained(folder, extra_ids=SENTINELS)
    dtype = torch.bfloat16 if name == "tied" else torch.float32
    for seed in range(1, 1000):
        model = SwitchTransformersForConditionalGeneration(
            SwitchTransformersConfig(**{**COMMON, **MODELS[name]})).eval()
        model.set_input_embeddings(model.shared)  # 5.12 shares it in tied models alone
        fill(model, seed, dtype)
        if (cases := answers(model, seed)) is None:
            continue
        cut = answers(model, seed, CAPACITY) if name == "tied" else []
        if cut is not None:
            break
    model.to(dtype).save_pretrained(folder, max_shard_size="10MB" if name == "tied" else "200KB")
    model.to(torch.float32)
    if name == "untied":
        tokenizer.save_pretrained(folder)
        (folder / "spiece.model").unlink()
    (folder / "generation_config.json").unlink()
    for path in folder.iterdir():
        path.chmod(0o644)
        if path.suffix == ".json":
            path.write_text(path.read_text().rstrip() + "\n")
    write_json(out / f"{name}.json", name, tokenizer, cases)
    if cut:
        write_json(out / "capacity.json", name, tokenizer, cut, CAPACITY)
    print(f"{name}: seed {seed}, {compare(model, cases):.2g} from transformers")


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDENS
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        spiece = tokenizer_file(pathlib.Path(scratch))
        for name in MODELS:
            make(name, out, spiece)


if __name__ == "__main__":
    main()
