#!/usr/bin/env python3
"""An executable statement of the glm5_next text forward: numpy float64, one token at a time, straight from the on-disk tensors.

The forward pass is the reference that came with the golden data of `glm5-next-tiny`, which transformers 5.24.0 made and this
confirms. Added to it: tensors are read without torch, compressed-tensors' names of NVFP4, `indexer_types` "shared", a null
decay bound, arithmetic in float32 on request, and a record of what a step saw.

usage: reference.py DIR...   compares with every array of DIR/golden.safetensors
"""
import json
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")           # matrices are small
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

import tensors

sig = lambda x: 1 / (1 + np.exp(-x))
silu = lambda x: x * sig(x)
softmax = lambda x, ax=-1: (lambda e: e / e.sum(ax, keepdims=True))(np.exp(x - x.max(ax, keepdims=True)))


class Weights:
    """Matrices by name, dequantised exactly."""

    def __init__(self, t, dtype=np.float64):
        self.t, self.dtype, self.cache = t, dtype, {}

    def __call__(self, name):
        if name not in self.cache:
            stem = name.removesuffix(".weight")
            if stem + ".weight_packed" in self.t:          # NVFP4 of compressed-tensors: the global scale divides
                w = tensors.dequantise_nvfp4(self.t[stem + ".weight_packed"], self.t[stem + ".weight_scale"])
                w = w / tensors.decode(self.t[stem + ".weight_global_scale"]).item()
            elif self.t[name][0] == "U8":                  # NVFP4 of ModelOpt: it multiplies
                w = tensors.dequantise_nvfp4(self.t[name], self.t[stem + ".weight_scale"])
                w = w * tensors.decode(self.t[stem + ".weight_scale_2"]).item()
            else:
                w = tensors.decode(self.t[name])
            self.cache[name] = w.astype(self.dtype)
        return self.cache[name]


def load(d):
    """config.json and the tensors of a folder, in one file or in shards."""
    index = os.path.join(d, "model.safetensors.index.json")
    files = sorted(set(json.load(open(index))["weight_map"].values())) if os.path.exists(index) else ["model.safetensors"]
    t = {}
    for file in files:
        t.update(tensors.read(os.path.join(d, file)))
    return json.load(open(os.path.join(d, "config.json"))), t


class Model:
    def __init__(self, config, t, dtype=np.float64):
        cfg = config["text_config"]
        la = cfg.get("linear_attn_config") or {}
        g = lambda k, alt: la[alt] if alt in la else cfg[k]
        self.c, self.w, self.dtype = cfg, Weights(t, dtype), dtype
        self.heads, self.dk = g("linear_num_heads", "num_heads"), g("linear_head_dim", "head_dim")
        self.kern, self.lb = g("linear_conv_kernel_dim", "short_conv_kernel_size"), g("linear_lower_bound", "gate_lower_bound")
        self.eps, self.hc = cfg["rms_norm_eps"], cfg["hc_mult"]
        self.state = [dict() for _ in range(cfg["num_hidden_layers"])]
        self.clamped = dict(gate=0, up=0, total=0)
        self.seen = {}                                     # of the last step: streams, and per block post, comb, x, y

    def rms(self, x, w):
        return w * (x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps))

    def mhc(self, S, p):
        n, e = self.hc, self.c["hc_eps"]
        f = S.reshape(-1)
        f = f / np.sqrt((f * f).mean() + self.eps)
        m = self.w(p + "_fn") @ f
        b, s = self.w(p + "_base"), self.w(p + "_scale")
        pre = sig(m[:n] * s[0] + b[:n]) + e
        post = 2 * sig(m[n:2 * n] * s[1] + b[n:2 * n])
        C = softmax((m[2 * n:] * s[2] + b[2 * n:]).reshape(n, n), -1) + e
        C = C / (C.sum(0, keepdims=True) + e)
        for _ in range(self.c["hc_sinkhorn_iters"] - 1):
            C = C / (C.sum(1, keepdims=True) + e)
            C = C / (C.sum(0, keepdims=True) + e)
        return post, C, pre @ S

    def kda(self, i, x, p):
        w, st, H, D = self.w, self.state[i], self.heads, self.dk
        if not st:
            st["conv"], st["S"] = np.zeros((3, H * D, self.kern), self.dtype), np.zeros((H, D, D), self.dtype)
        o = []
        for j, n in enumerate("qkv"):
            st["conv"][j] = np.concatenate([st["conv"][j][:, 1:], (w(f"{p}{n}_proj.weight") @ x)[:, None]], 1)
            o.append(silu((st["conv"][j] * w(f"{p}{n}_conv1d.weight")[:, 0]).sum(1)).reshape(H, D))
        q, k, v = o
        l2 = lambda a: a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-6)
        q, k = l2(q) / D ** 0.5, l2(k)
        f = (w(p + "f_b_proj.weight") @ (w(p + "f_a_proj.weight") @ x) + w(p + "dt_bias")).reshape(H, D)
        A = np.exp(w(p + "A_log"))[:, None]
        g = -A * np.logaddexp(0, f) if self.lb is None else self.lb * sig(A * f)
        beta = sig(w(p + "b_proj.weight") @ x)
        S = st["S"] * np.exp(g)[:, :, None]
        d = (v - np.einsum("hkv,hk->hv", S, k)) * beta[:, None]
        st["S"] = S = S + k[:, :, None] * d[:, None, :]
        y = np.einsum("hkv,hk->hv", S, q)
        gate = (w(p + "g_b_proj.weight") @ (w(p + "g_a_proj.weight") @ x)).reshape(H, D)
        return w(p + "o_proj.weight") @ (self.rms(y, w(p + "o_norm.weight")) * sig(gate)).reshape(-1)

    def indexer(self, i, x, qr, p):
        """The selection of a layer with an indexer of its own: (positions, best pools first and then the tail, -1 for what is
        unused; score of the last pool selected minus that of the first left out; whether these are one exact value)."""
        w, c, st = self.w, self.c, self.state[i]
        ih, idim, P = (c[k] for k in ("index_n_heads", "index_head_dim", "index_kpool"))
        a = w(p + "indexer.wk.weight") @ x
        a = (a - a.mean()) / np.sqrt(a.var() + 1e-6) * w(p + "indexer.k_norm.weight") + w(p + "indexer.k_norm.bias")
        st["k"].append(a)
        st["g"].append(w(p + "indexer.index_kpool_compress_gate") @ x)
        T = len(st["k"])
        n, most = T // P, c["index_topk"] // P
        sel, margin, tie = [], np.inf, None
        if n:
            K = np.array(st["k"][:n * P]).reshape(n, P, -1)
            G = np.array(st["g"][:n * P]).reshape(n, P, -1) + w(p + "indexer.index_kpool_compress_ape")
            pool = (softmax(G, 1) * K).sum(1)
            iq = (w(p + "indexer.wq_b.weight") @ qr).reshape(ih, idim)
            hw = (w(p + "indexer.weights_proj.weight") @ x) * ih ** -0.5
            dots = iq @ pool.T * idim ** -0.5
            sc = hw @ np.maximum(dots, 0)
            best = np.argsort(-sc, kind="stable")
            for b in best[:most]:
                sel += list(range(b * P, b * P + P))
            if n > most:
                margin = sc[best[most - 1]] - sc[best[most]]
                # No head fires for pools that tie: their score is exactly zero in any arithmetic, if not by a hair.
                tie = dict(scores=sc, dots=dots) if margin == 0 else None
        sel += list(range(n * P, T))                       # tail: the incomplete pool only
        return sel + [-1] * (c["index_topk"] + P - 1 - len(sel)), margin, tie

    def mla(self, i, x, p):
        w, c, st = self.w, self.c, self.state[i]
        h, dn, dv = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
        if not st:
            st.update(lat=[], k=[], g=[])
        qr = self.rms(w(p + "q_a_proj.weight") @ x, w(p + "q_a_layernorm.weight"))
        q = (w(p + "q_b_proj.weight") @ qr).reshape(h, dn)
        st["lat"].append(self.rms(w(p + "kv_a_proj_with_mqa.weight") @ x, w(p + "kv_a_layernorm.weight")))
        if c.get("indexer_types", ["full"] * (i + 1))[i] == "full":
            self.selection = self.indexer(i, x, qr, p)     # a "shared" layer takes that of the last layer that has its own
        st["raw"], st["margin"], st["tie"] = self.selection
        sel = np.array(sorted(s for s in st["raw"] if s >= 0))
        st["sel"] = sel
        kv = (np.array(st["lat"])[sel] @ w(p + "kv_b_proj.weight").T).reshape(len(sel), h, dn + dv)
        pr = softmax(np.einsum("hd,shd->hs", q, kv[..., :dn]) * dn ** -0.5)
        return w(p + "o_proj.weight") @ np.einsum("hs,shd->hd", pr, kv[..., dn:]).reshape(-1)

    def ffn(self, x, p):
        lim, w = self.c["swiglu_limit"], self.w
        g, u = w(p + "gate_proj.weight") @ x, w(p + "up_proj.weight") @ x
        self.clamped["gate"] += int((g > lim).sum())
        self.clamped["up"] += int((np.abs(u) > lim).sum())
        self.clamped["total"] += len(g)
        return w(p + "down_proj.weight") @ (silu(np.minimum(g, lim)) * np.clip(u, -lim, lim))

    def moe(self, i, x, p):
        c, k = self.c, self.c["num_experts_per_tok"]
        s = sig(self.w(p + "gate.weight") @ x)
        b = s + self.w(p + "gate.e_score_correction_bias")
        best = np.argsort(-b, kind="stable")
        idx = np.sort(best[:k])
        wt = s[idx] / (s[idx].sum() + 1e-20) * c["routed_scaling_factor"]
        self.state[i]["route"] = (idx, wt, b[best[k - 1]] - b[best[k]])
        return sum(a * self.ffn(x, f"{p}experts.{e}.") for e, a in zip(idx, wt)) + self.ffn(x, p + "shared_experts.")

    def step(self, tok):
        L = "model.language_model."
        S = np.repeat(self.w(L + "embed_tokens.weight")[tok][None], self.hc, 0)
        self.seen = seen = dict(streams=[S])
        note = lambda block, *values: [seen.setdefault(f"{block}_{k}", []).append(v) for k, v in zip(("post", "comb", "collapsed", "out"), values)]
        for i in range(self.c["num_hidden_layers"]):
            p = f"{L}layers.{i}."
            post, C, c = self.mhc(S, p + "hc_attn")
            x = self.rms(c, self.w(p + "input_layernorm.weight"))
            y = (self.kda if self.c["layer_types"][i] == "linear_attention" else self.mla)(i, x, p + "self_attn.")
            note("attn", post, C, c, y)
            S = post[:, None] * y[None] + C.T @ S
            post, C, c = self.mhc(S, p + "hc_ffn")
            x = self.rms(c, self.w(p + "post_attention_layernorm.weight"))
            y = self.ffn(x, p + "mlp.") if self.c["mlp_layer_types"][i] == "dense" else self.moe(i, x, p + "mlp.")
            note("ffn", post, C, c, y)
            S = post[:, None] * y[None] + C.T @ S
            seen["streams"].append(S)
        seen["final_norm"] = self.rms(S.mean(0), self.w(L + "norm.weight"))
        return self.w("lm_head.weight") @ seen["final_norm"]

    def layers(self):
        """Indices of the layers that route, that attend to latents, that are recurrent."""
        of = lambda field, kinds: [i for i, kind in enumerate(self.c[field]) if kind in kinds]
        attends = of("layer_types", ("indexed_attention", "deepseek_sparse_attention"))
        return of("mlp_layer_types", ("sparse",)), attends, of("layer_types", ("linear_attention",))


def run(model, prompt, steps, full_steps):
    """Reads the prompt and continues it greedily. What a file of golden data holds, by name; the margins of every choice; the
    exact ties of pools."""
    sparse, attends, recurrent = model.layers()
    routes = lambda: [[model.state[i]["route"][j] for i in sparse] for j in range(3)]
    picks = lambda: [[model.state[i][key] for i in attends] for key in ("raw", "margin")]
    rows, ties, margins = {}, [], []

    def step(tok, phase):
        logits = model.step(tok)
        values = dict(zip(("router_idx", "router_weight", "router_margin", "indexer_idx", "indexer_margin"), routes() + picks()))
        for name, value in values.items():
            rows.setdefault(f"{phase}_{name}", []).append(np.array(value))
        rows.setdefault(f"{phase}_logits", []).append(logits)
        # A shared selection is the same object.
        ties.extend({id(tie): tie for i in attends if (tie := model.state[i]["tie"])}.values())
        top = np.argsort(-logits, kind="stable")
        margins.append(logits[top[0]] - logits[top[1]])
        return top

    for tok in prompt:
        top = step(tok, "prefill")
    last_streams = np.array(model.seen["streams"])
    state = lambda i: model.state[i]["S"].copy()
    out = dict(
        kda_state_after_prefill=np.array([state(recurrent[0]), state(recurrent[-1])]),
        kda_conv_after_prefill=model.state[recurrent[0]]["conv"].reshape(-1, model.kern).copy(),
        prefill_last_streams=last_streams,
    )
    generated, best = [int(top[0])], []
    for s in range(steps):
        top = step(generated[-1], "decode")
        generated.append(int(top[0]))
        best.append(top[:5])
        if s == 0:
            seen = {("mlp_out" if k == "ffn_out" else k): v for k, v in model.seen.items()}
            out.update({f"step0_{k}": np.array(v) for k, v in seen.items()})
    logits = np.array(rows.pop("decode_logits"))
    out.update({k: np.array(v) for k, v in rows.items()})
    out.update(
        prompt_ids=np.array(prompt), generated_ids=np.array(generated), decode_top5_ids=np.array(best),
        decode_top5_logits=np.take_along_axis(logits, np.array(best), 1),
        decode_full_logits_steps=np.array(full_steps), decode_full_logits=logits[full_steps],
        kda_state_layer0_end=state(recurrent[0]),
    )
    return out, margins[len(prompt) - 1:], ties


def as_sets(a):
    return np.sort(a, -1)


def compare(d):
    """One line of differences from the golden data of a folder; whether they are within the tolerances given for it."""
    golden = tensors.read(os.path.join(d, "golden.safetensors"))
    model = Model(*load(d))
    wanted = {name: stored for name, (_, stored) in golden.items()}
    prompt, generated = wanted["prompt_ids"].tolist(), wanted["generated_ids"]
    found, _, _ = run(model, prompt, len(generated) - 1, wanted["decode_full_logits_steps"])
    worst, integers = {}, []
    for name, a in sorted(wanted.items()):
        b = found[name]
        assert a.shape == b.shape, f"{name}: {a.shape} in the file, {b.shape} computed"
        if a.dtype == np.int32:
            same = np.array_equal(as_sets(a), as_sets(b)) if "indexer" in name else np.array_equal(a, b)
            integers += [] if same else [name]
        else:
            finite = np.isfinite(a)
            worst[name] = np.abs(a[finite] - b[finite]).max(initial=0) if np.array_equal(finite, np.isfinite(b)) else np.inf
    print(f"{d}: tokens_equal={np.array_equal(generated, found['generated_ids'])} integer arrays that differ: {integers or 'none'}")
    for name, value in worst.items():
        scale = np.abs(wanted[name][np.isfinite(wanted[name])]).max(initial=0)
        print(f"  {name:28} max |difference| {value:.1e} of {scale:.3g}")
    return not integers and worst["prefill_logits"] < 1e-4 and worst["decode_top5_logits"] < 1e-4


if __name__ == "__main__":
    sys.exit(0 if all([compare(d) for d in sys.argv[1:]]) else 1)
