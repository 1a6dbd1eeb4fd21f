"""The models that estimates are judged by: a family, how to build one, and the batches to try.

Each is small enough to be measured whole in seconds, and different in what makes its peak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Made = tuple[Any, Callable[[int], tuple[Any, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model of the benchmark.

    Args:
        family: What it counts as.
        make: Returns a compiled model, and a function that makes a batch of so many examples.
        batches: The batches to estimate.
    """

    family: str
    make: Callable[[], Made]
    batches: tuple[int, ...] = (64, 256, 512)


def _words(vocabulary: int, *shape: int) -> Callable[[int], Any]:
    import numpy as np

    return lambda n: np.random.default_rng(1).integers(0, vocabulary, (n, *shape)).astype("int32")


def _floats(*shape: int) -> Callable[[int], Any]:
    import numpy as np

    return lambda n: np.random.default_rng(2).random((n, *shape), np.float32)


def _compiled(
    model: Any, x: Callable[[int], Any], y: Callable[[int], Any], loss: Any = "mse", optimizer: Any = "adam"
) -> Made:
    model.compile(optimizer, loss)
    return model, lambda n: (x(n), y(n))


def _classes() -> Any:
    import keras

    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def recurrent(kind: str, units: int, length: int, *, num: int = 1, wrap: bool = False) -> Made:
    """A stack of recurrent layers over vectors."""
    import keras
    from keras import layers

    stack = [getattr(layers, kind)(units, return_sequences=place < num - 1) for place in range(num)]
    if wrap:
        stack = [layers.Bidirectional(each) for each in stack]
    model = keras.Sequential([keras.Input((None, 32)), *stack, layers.Dense(10)])
    return _compiled(model, _floats(length, 32), _words(10), _classes())


def language(kind: str, vocabulary: int, units: int, length: int) -> Made:
    """Words in, a softmax over all words at every step out."""
    import keras
    from keras import layers

    body = getattr(layers, kind)(units, return_sequences=True)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(vocabulary, 64),
            body,
            layers.Dense(vocabulary),
        ]
    )
    return _compiled(model, _words(vocabulary, length), _words(vocabulary, length), _classes())


def text(vocabulary: int, length: int) -> Made:
    """A large table of words and one label."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(vocabulary, 64, mask_zero=True),
            layers.LSTM(64),
            layers.Dense(2),
        ]
    )
    return _compiled(model, _words(vocabulary, length), _words(2), _classes())


def encoder_decoder(*, with_attention: bool) -> Made:
    """Sequences to sequences of 2,000 words."""
    import keras
    from keras import layers

    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    encoded, *state = layers.LSTM(96, return_sequences=True, return_state=True)(
        layers.Embedding(2000, 64)(source)
    )
    decoded = layers.LSTM(96, return_sequences=True)(layers.Embedding(2000, 64)(target), initial_state=state)
    if with_attention:
        decoded = layers.Concatenate()([decoded, layers.Attention()([decoded, encoded])])
    model = keras.Model([source, target], layers.Dense(2000)(decoded))
    words = _words(2000, 30)
    return _compiled(model, lambda n: (words(n), words(n)), words, _classes())


def convolutional(*filters: int, size: int = 32, norm: bool = False, pool: bool = True) -> Made:
    """Convolutions, with or without normalization."""
    import keras
    from keras import layers

    stack: list[Any] = []
    for number in filters:
        stack.append(layers.Conv2D(number, 3, padding="same", activation=None if norm else "relu"))
        if norm:
            stack += [layers.BatchNormalization(), layers.ReLU()]
        if pool:
            stack.append(layers.MaxPooling2D())
    model = keras.Sequential(
        [keras.Input((size, size, 3)), *stack, layers.GlobalAveragePooling2D(), layers.Dense(10)]
    )
    return _compiled(model, _floats(size, size, 3), _words(10), _classes())


def signals() -> Made:
    """Convolutions over time."""
    import keras
    from keras import layers

    stack = [layers.Conv1D(64, 5, padding="causal", dilation_rate=2**k, activation="relu") for k in range(4)]
    model = keras.Sequential([keras.Input((None, 8)), *stack, layers.Dense(1)])
    return _compiled(model, _floats(200, 8), _floats(200, 1))


def residual(num_blocks: int, *, is_bottleneck: bool = False) -> Made:
    """A small ResNet."""
    import keras
    from keras import layers

    def convolve(x: Any, filters: int, size: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    inputs = keras.Input((32, 32, 3))
    x = layers.ReLU()(convolve(inputs, 16, 3))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(num_blocks):
            strides = 2 if stage and not block else 1
            if is_bottleneck:
                y = layers.ReLU()(convolve(x, filters, 1, strides))
                y = convolve(layers.ReLU()(convolve(y, filters, 3)), 4 * filters, 1)
            else:
                y = convolve(layers.ReLU()(convolve(x, filters, 3, strides)), filters, 3)
            if x.shape[-1] != y.shape[-1] or strides > 1:
                x = convolve(x, y.shape[-1], 1, strides)
            x = layers.ReLU()(layers.Add()([x, y]))
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    return _compiled(model, _floats(32, 32, 3), _words(10), _classes())


def mobile(version: int, size: int) -> Made:
    """MobileNet as Keras has it."""
    import keras

    kind = {1: keras.applications.MobileNet, 2: keras.applications.MobileNetV2}[version]
    model = kind(input_shape=(size, size, 3), alpha=0.35 if version == 2 else 0.25, weights=None, classes=10)
    return _compiled(model, _floats(size, size, 3), _words(10), "sparse_categorical_crossentropy")


def attention(length: int, *, is_language: bool, num: int = 2) -> Made:
    """A Transformer that labels texts, or that predicts the next word."""
    import keras
    from keras import layers

    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(2000, 64)(inputs)
    for _ in range(num):
        mixed = layers.MultiHeadAttention(4, 16)(x, x, use_causal_mask=is_language)
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(mixed))
        wide = layers.Dense(64)(layers.Dense(256, activation="gelu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(wide))
    if is_language:
        return _compiled(
            keras.Model(inputs, layers.Dense(2000)(x)), _words(2000, length), _words(2000, length), _classes()
        )
    pooled = layers.GlobalAveragePooling1D()(x)
    return _compiled(
        keras.Model(inputs, layers.Dense(4)(pooled)), _words(2000, length), _words(4), _classes()
    )


def patches() -> Made:
    """A Transformer over patches of images."""
    import keras
    from keras import layers

    inputs = keras.Input((32, 32, 3))
    x = layers.Reshape((64, 96))(layers.Conv2D(96, 4, strides=4)(inputs))
    for _ in range(3):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(6, 16)(normed, normed)
        x = x + layers.Dense(96)(layers.Dense(192, activation="gelu")(layers.LayerNormalization()(x)))
    model = keras.Model(inputs, layers.Dense(10)(layers.Flatten()(x)))
    return _compiled(model, _floats(32, 32, 3), _words(10), _classes(), "adamw")


def dense_autoencoder() -> Made:
    """Dense layers that narrow and widen."""
    import keras
    from keras import layers

    widths = (1024, 256, 32, 256, 1024)
    stack = [layers.Dense(width, activation="relu") for width in widths]
    model = keras.Sequential([keras.Input((2048,)), *stack, layers.Dense(2048)])
    return _compiled(model, _floats(2048), _floats(2048))


def convolutional_autoencoder() -> Made:
    """Convolutions that shrink and grow."""
    import keras
    from keras import layers

    down = [layers.Conv2D(f, 3, strides=2, padding="same", activation="relu") for f in (16, 32, 64)]
    up = [layers.Conv2DTranspose(f, 3, strides=2, padding="same", activation="relu") for f in (32, 16)]
    last = layers.Conv2DTranspose(3, 3, strides=2, padding="same")
    model = keras.Sequential([keras.Input((64, 64, 3)), *down, *up, last])
    return _compiled(model, _floats(64, 64, 3), _floats(64, 64, 3))


def unet() -> Made:
    """A small U-Net."""
    import keras
    from keras import layers

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    inputs = keras.Input((48, 48, 3))
    x, kept = inputs, []
    for filters in (16, 32, 64):
        x = twice(x, filters)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    x = twice(x, 96)
    for filters in (64, 32, 16):
        x = layers.Concatenate()([layers.Conv2DTranspose(filters, 2, strides=2)(x), kept.pop()])
        x = twice(x, filters)
    return _compiled(keras.Model(inputs, layers.Conv2D(1, 1)(x)), _floats(48, 48, 3), _floats(48, 48, 1))


def frames() -> Made:
    """Convolutions on each image of a film, then an LSTM."""
    import keras
    from keras import layers

    eye = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    inputs = keras.Input((8, 24, 24, 3))
    model = keras.Model(inputs, layers.Dense(5)(layers.LSTM(64)(layers.TimeDistributed(eye)(inputs))))
    return _compiled(model, _floats(8, 24, 24, 3), _words(5), _classes())


def films() -> Made:
    """A convolutional LSTM."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((6, 24, 24, 1)),
            layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True),
            layers.Conv3D(1, 3, padding="same"),
        ]
    )
    return _compiled(model, _floats(6, 24, 24, 1), _floats(6, 24, 24, 1))


def several_inputs() -> Made:
    """An image and a text in, a class and a number out."""
    import keras
    from keras import layers

    image, words = keras.Input((32, 32, 3)), keras.Input((20,), dtype="int32")
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(64, 3, activation="relu")(image))
    read = layers.GRU(64)(layers.Embedding(1000, 32)(words))
    both = layers.Dense(128, activation="relu")(layers.Concatenate()([seen, read]))
    model = keras.Model([image, words], [layers.Dense(10)(both), layers.Dense(1)(both)])
    model.compile("rmsprop", [_classes(), "mse"])
    pictures, texts, classes, numbers = _floats(32, 32, 3), _words(1000, 20), _words(10), _floats(1)
    return model, lambda n: ((pictures(n), texts(n)), (classes(n), numbers(n)))


def subclassed() -> Made:
    """A model that is only code."""
    import keras
    from keras import layers

    class Mixer(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [layers.Dense(512, activation="gelu") for _ in range(4)]
            self.norms = [layers.LayerNormalization() for _ in range(4)]
            self.first, self.head = layers.Dense(512), layers.Dense(10)

        def call(self, x: Any) -> Any:
            x = self.first(x)
            for block, norm in zip(self.blocks, self.norms, strict=True):
                x = x + block(norm(x))
            return self.head(x)

    model = Mixer()
    model(_floats(256)(1))
    return _compiled(model, _floats(256), _words(10), _classes())


def variational() -> Made:
    """A subclassed autoencoder with a loss of its own and its own training step."""
    import keras
    import tensorflow as tf
    from keras import layers

    class Variational(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encode = keras.Sequential([layers.Dense(512, activation="relu"), layers.Dense(64)])
            self.decode = keras.Sequential([layers.Dense(512, activation="relu"), layers.Dense(784)])
            self.seeds = keras.random.SeedGenerator(0)

        def call(self, x: Any) -> Any:
            mean, spread = keras.ops.split(self.encode(x), 2, axis=-1)
            code = mean + keras.ops.exp(spread) * keras.random.normal(keras.ops.shape(mean), seed=self.seeds)
            return self.decode(code), mean, spread

        def train_step(self, data: Any) -> Any:
            x, _ = data
            with tf.GradientTape() as tape:
                again, mean, spread = self(x)
                loss = keras.ops.mean(keras.ops.square(again - x))
                loss += keras.ops.mean(keras.ops.square(mean) + keras.ops.exp(spread) - spread)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

        def test_step(self, data: Any) -> Any:
            x, _ = data
            return {"loss": keras.ops.mean(keras.ops.square(self(x)[0] - x))}

    model = Variational()
    model(_floats(784)(1))
    return _compiled(model, _floats(784), _floats(1), None)


def perceptron(optimizer: Any, width: int = 1536) -> Made:
    """Wide dense layers, where weights, gradients and slots are most of the peak."""
    import keras
    from keras import layers

    stack = [layers.Dense(width, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input((512,)), *stack, layers.Dense(10)])
    chosen = optimizer(keras.optimizers) if callable(optimizer) else optimizer
    return _compiled(model, _floats(512), _words(10), _classes(), chosen)


WIDE = (128, 512, 1024)
SOME = (64, 128, 256)
CASES: dict[str, Case] = {
    "lstm": Case(family="LSTM", make=lambda: recurrent("LSTM", 256, 100)),
    "lstm-long": Case(family="LSTM", make=lambda: recurrent("LSTM", 128, 500), batches=SOME),
    "simple-rnn": Case(family="LSTM", make=lambda: recurrent("SimpleRNN", 256, 300)),
    "gru": Case(family="GRU", make=lambda: recurrent("GRU", 256, 100)),
    "gru-wide": Case(family="GRU", make=lambda: recurrent("GRU", 512, 50)),
    "bidirectional-lstm": Case(family="bidirectional", make=lambda: recurrent("LSTM", 128, 100, wrap=True)),
    "bidirectional-gru-2": Case(
        family="bidirectional", make=lambda: recurrent("GRU", 96, 60, num=2, wrap=True)
    ),
    "lstm-3": Case(family="stacked", make=lambda: recurrent("LSTM", 128, 64, num=3)),
    "gru-2": Case(family="stacked", make=lambda: recurrent("GRU", 192, 100, num=2)),
    "encoder-decoder": Case(
        family="encoder-decoder", make=lambda: encoder_decoder(with_attention=False), batches=WIDE
    ),
    "encoder-decoder-attention": Case(
        family="encoder-decoder", make=lambda: encoder_decoder(with_attention=True), batches=WIDE
    ),
    "language-lstm": Case(family="embedding", make=lambda: language("LSTM", 5000, 96, 20)),
    "language-gru": Case(family="embedding", make=lambda: language("GRU", 10_000, 64, 10)),
    "text-50000": Case(family="embedding", make=lambda: text(50_000, 60)),
    "cnn": Case(family="CNN", make=lambda: convolutional(32, 64, 128), batches=WIDE),
    "cnn-norm": Case(family="CNN", make=lambda: convolutional(32, 64, 128, norm=True)),
    "cnn-flat": Case(
        family="CNN", make=lambda: convolutional(32, 32, 32, 32, size=24, pool=False), batches=WIDE
    ),
    "signals": Case(family="CNN", make=signals, batches=WIDE),
    "resnet": Case(family="ResNet", make=lambda: residual(2), batches=SOME),
    "resnet-bottleneck": Case(family="ResNet", make=lambda: residual(1, is_bottleneck=True), batches=SOME),
    "mobilenet": Case(family="MobileNet", make=lambda: mobile(1, 64)),
    "mobilenet-v2": Case(family="MobileNet", make=lambda: mobile(2, 64), batches=SOME),
    "transformer": Case(family="Transformer", make=lambda: attention(64, is_language=False)),
    "transformer-language": Case(
        family="Transformer", make=lambda: attention(64, is_language=True), batches=SOME
    ),
    "transformer-long": Case(
        family="Transformer", make=lambda: attention(256, is_language=False, num=1), batches=SOME
    ),
    "transformer-patches": Case(family="Transformer", make=patches),
    "autoencoder-dense": Case(family="autoencoder", make=dense_autoencoder, batches=WIDE),
    "autoencoder-convolutional": Case(family="autoencoder", make=convolutional_autoencoder),
    "unet": Case(family="autoencoder", make=unet, batches=SOME),
    "frames": Case(family="mixed", make=frames),
    "films": Case(family="mixed", make=films, batches=SOME),
    "several-inputs": Case(family="mixed", make=several_inputs),
    "subclassed": Case(family="subclassed", make=subclassed, batches=WIDE),
    "variational": Case(family="subclassed", make=variational, batches=WIDE),
    "perceptron-sgd": Case(family="optimizers", make=lambda: perceptron("sgd"), batches=WIDE),
    "perceptron-adam-clipped": Case(
        family="optimizers",
        make=lambda: perceptron(lambda optimizers: optimizers.Adam(global_clipnorm=1.0)),
        batches=WIDE,
    ),
    "perceptron-adafactor": Case(family="optimizers", make=lambda: perceptron("adafactor"), batches=WIDE),
    "perceptron-lion": Case(family="optimizers", make=lambda: perceptron("lion"), batches=WIDE),
}
